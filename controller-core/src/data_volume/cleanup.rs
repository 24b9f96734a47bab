//! What is deleted once the PVC of a DataVolume is filled, or the DataVolume is terminating.

use api::labels::finalizer;
use api::names;
use api::v1beta1::VolumeCloneSource;

use super::facts::DataVolumeFacts;
use super::plan::is_bound;
use crate::meta;
use crate::plan::Write;

/// The sources of a filled PVC. Checkpoints may still be added to an import in stages, whose source is kept.
pub(super) fn sources(facts: &DataVolumeFacts) -> Vec<Write> {
    let mut writes = Vec::new();
    // A PVC that requires no work may have succeeded before it is bound; its volume may be made from its source.
    if is_bound(facts) {
        let imported =
            facts.import_source.as_ref().filter(|source| source.spec.checkpoints.is_none());
        writes.extend(imported.and_then(|source| Write::delete(source.as_ref())));
        let uploaded = facts.upload_source.as_ref();
        writes.extend(uploaded.and_then(|source| Write::delete(source.as_ref())));
    }
    writes.extend(clone_objects(facts));
    writes
}

/// Deletes the VolumeCloneSource, then removes the finalizer: while it is in another namespace, only the finalizer keeps the
/// DataVolume until it is deleted.
pub(super) fn clone_objects(facts: &DataVolumeFacts) -> Vec<Write> {
    if !facts.is_clone() {
        return Vec::new();
    }
    let volume = facts.volume.as_ref();
    let sources = facts.clone.clone_sources.iter();
    let mut writes: Vec<_> = sources.filter_map(|source| Write::delete(source.as_ref())).collect();
    let released = Write::remove_finalizer(volume, finalizer::DATA_VOLUME);
    // A VolumeCloneSource that was created recently may not be in the cache.
    if released.is_some()
        && volume.metadata.deletion_timestamp.is_some()
        && let Some(origin) = &facts.clone.requested
    {
        let name = names::clone_source(meta::uid(&volume.metadata));
        writes.push(Write::delete_named::<VolumeCloneSource>(&origin.namespace, &name));
    }
    writes.extend(released);
    writes
}
