//! Labels and annotations of the DataVolume itself.

use std::ops::ControlFlow;

use api::labels::{
    DEFAULT_INSTANCETYPE, DEFAULT_INSTANCETYPE_KIND, DEFAULT_PREFERENCE, DEFAULT_PREFERENCE_KIND,
};

use super::facts::{CloneSourceObject, DataVolumeFacts};
use super::plan::{Planned, status_facts};
use super::{annotations, clone_pvc};
use crate::clone::Origin;
use crate::meta::{self, Pairs};
use crate::operation::{Operation, PopulationMode};
use crate::plan::Write;

/// Which instance type and preference a virtual machine should have that boots from the disk.
const INHERITED: [&str; 4] =
    [DEFAULT_INSTANCETYPE, DEFAULT_INSTANCETYPE_KIND, DEFAULT_PREFERENCE, DEFAULT_PREFERENCE_KIND];

/// Labels and annotations that the DataVolume lacks.
pub(super) fn metadata_write(
    facts: &DataVolumeFacts,
    population: PopulationMode,
) -> Planned<Option<Write>> {
    let annotations = annotations(&status_facts(facts, population));
    let labels = inherited_labels(facts)?;
    ControlFlow::Continue(Write::metadata(facts.volume.as_ref(), &labels, &annotations))
}

/// A registry's image names instance type and preference, and its importer writes them to the PVC. A clone inherits them from
/// its source, or from its DataSource.
fn inherited_labels(facts: &DataVolumeFacts) -> Planned<Pairs> {
    let is_registry =
        matches!(&facts.operation, Operation::Import(source) if source.registry.is_some());
    let metadata = &facts.volume.metadata;
    if INHERITED.iter().any(|key| meta::label(metadata, key).is_some()) {
        return ControlFlow::Continue(Pairs::new());
    }
    ControlFlow::Continue(match (&facts.clone.origin, &facts.claim) {
        (Some(origin), _) => source_labels(facts, origin)?,
        (None, Some(claim)) if is_registry => inherited(claim.metadata.labels.as_ref()),
        (None, _) => Pairs::new(),
    })
}

/// Labels of the source of a clone; where it has none, those of the DataSource.
fn source_labels(facts: &DataVolumeFacts, origin: &Origin) -> Planned<Pairs> {
    let labels = match &facts.clone.source {
        Some(CloneSourceObject::Claim(claim)) => claim.metadata.labels.as_ref(),
        Some(CloneSourceObject::Snapshot(snapshot)) => snapshot.metadata.labels.as_ref(),
        // It may be created with labels of its own.
        None => return ControlFlow::Continue(Pairs::new()),
    };
    let mut found = inherited(labels);
    if found.is_empty() {
        found = inherited(facts.clone.data_source_labels.as_ref());
    }
    if found.is_empty() || origin.namespace == meta::namespace(&facts.volume.metadata) {
        return ControlFlow::Continue(found);
    }
    // Nothing of another namespace is read before the permission to clone is verified.
    let permission = clone_pvc::permission(facts, origin)?;
    ControlFlow::Continue(if permission.is_ok() { found } else { Pairs::new() })
}

fn inherited(labels: Option<&Pairs>) -> Pairs {
    let mut labels = labels.cloned().unwrap_or_default();
    labels.retain(|key, _| INHERITED.contains(&key.as_str()));
    labels
}
