//! The DataSource that refers to the newest import.

use api::labels;
use api::v1beta1::{DataImportCron, DataSource, DataSourceSource, DataSourceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Change;
use super::import::{copied_labels, marks};
use crate::meta::{self, Installation, Pairs};

/// Whether this cron may change the DataSource. A user who removes the label manages it alone.
pub(super) fn is_managed(cron: &DataImportCron, source: &DataSource) -> bool {
    meta::label(&source.metadata, labels::DATA_IMPORT_CRON) == Some(meta::name(&cron.metadata))
}

/// Creates the DataSource, or sets its source to `wanted`. `None` leaves the source.
pub(super) fn change(
    cron: &DataImportCron,
    present: Option<&DataSource>,
    wanted: Option<DataSourceSource>,
    installation: &Installation,
) -> Option<Change> {
    let Some(present) = present else {
        let spec = DataSourceSpec { source: wanted.unwrap_or_default() };
        let mut source = DataSource::new(&cron.spec.managed_data_source, spec);
        let mut labels = copied_labels(cron);
        labels.extend(installation.labels());
        labels.extend(marks(cron));
        source.metadata = ObjectMeta {
            name: Some(cron.spec.managed_data_source.clone()),
            namespace: cron.metadata.namespace.clone(),
            labels: Some(labels),
            ..ObjectMeta::default()
        };
        return Some(Change::CreateSource(Box::new(source)));
    };
    if !is_managed(cron, present) || present.metadata.deletion_timestamp.is_some() {
        return None;
    }
    // Labels of the image are newer than the cron's: existing labels stay.
    let mut labels: Pairs = copied_labels(cron);
    labels.retain(|key, _| meta::label(&present.metadata, key).is_none());
    for (key, value) in marks(cron) {
        if meta::label(&present.metadata, &key) != Some(value.as_str()) {
            labels.insert(key, value);
        }
    }
    let source = wanted.filter(|wanted| *wanted != present.spec.source);
    let name = cron.spec.managed_data_source.clone();
    (source.is_some() || !labels.is_empty()).then_some(Change::ChangeSource {
        name,
        source,
        labels,
    })
}
