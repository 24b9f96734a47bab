//! Whose work it is when something changes that a DataImportCron has made, or that a DataSource stands for.

use api::labels;
use api::v1beta1::DataImportCron;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::Context;
use crate::engine::cache::{Change, key_of, key_of_metadata};
use crate::engine::index::Term;
use crate::engine::queue::Key;
use controller_core::meta;

/// A DataImportCron, and those that may have waited for its DataSource.
pub fn cron(context: &Context, change: &Change<DataImportCron>) {
    let cron = change.object();
    context.queues.crons.add(key_of(cron));
    let is_gone = matches!(change, Change::Deleted(_));
    if is_gone || cron.metadata.deletion_timestamp.is_some() {
        context.polls.forget(cron);
    }
    if is_gone {
        let namespace = meta::namespace(&cron.metadata);
        let managed = Key::new(namespace, cron.spec.managed_data_source.as_str());
        for other in context.cluster.stores.crons.find(&Term::Manages(managed)) {
            context.queues.crons.add(key_of(other.as_ref()));
        }
    }
}

/// All of them: what storage there is, or how sources are reached, has changed.
pub fn all(context: &Context) {
    for cron in context.cluster.stores.crons.filter(|_| true) {
        context.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// A claim, or the DataVolume that fills it.
pub fn claim(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    wake_data_sources(context, &Term::RefersToClaim(key_of_metadata(metadata)));
}

/// A snapshot.
pub fn snapshot(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    wake_data_sources(context, &Term::RefersToSnapshot(key_of_metadata(metadata)));
}

/// A DataSource, and those that point to it.
pub fn data_source(context: &Context, metadata: &ObjectMeta) {
    made(context, metadata);
    let key = key_of_metadata(metadata);
    wake_data_sources(context, &Term::PointsTo(key.clone()));
    context.queues.data_sources.add(key.clone());
    // One of this name may be missed by a cron that did not make it.
    for cron in context.cluster.stores.crons.find(&Term::Manages(key)) {
        context.queues.crons.add(key_of(cron.as_ref()));
    }
}

/// What looks for newer images stands in another namespace than its cron.
pub fn cron_job(context: &Context, metadata: &ObjectMeta) {
    let cron = meta::label(metadata, labels::DATA_IMPORT_CRON);
    let namespace = meta::label(metadata, labels::DATA_IMPORT_CRON_NAMESPACE);
    if let (Some(cron), Some(namespace)) = (cron, namespace) {
        context.queues.crons.add(Key::new(namespace, cron));
    }
}

/// The cron that has made something, also one that is gone: it may have something to tidy.
fn made(context: &Context, metadata: &ObjectMeta) {
    if let Some(cron) = meta::label(metadata, labels::DATA_IMPORT_CRON) {
        context.queues.crons.add(Key::new(meta::namespace(metadata), cron));
    }
}

/// These DataSources, and those that point to them. Found by the index, as every change of a claim comes here, and a tenant
/// may have any number of DataSources.
fn wake_data_sources(context: &Context, term: &Term) {
    let data_sources = &context.cluster.stores.data_sources;
    for source in data_sources.find(term) {
        let key = key_of(source.as_ref());
        for other in data_sources.find(&Term::PointsTo(key.clone())) {
            context.queues.data_sources.add(key_of(other.as_ref()));
        }
        context.queues.data_sources.add(key);
    }
}
