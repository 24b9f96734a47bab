//! The size of a clone's PVC: computed if its DataVolume names none, else compared with the source.

use std::ops::ControlFlow;
use std::sync::Arc;

use api::annotations::request;
use api::events;
use api::v1beta1::{ClaimVolumeMode, ContentType, StorageProfile};
use contract::ByteCount;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::facts::{CloneSourceObject, DataVolumeFacts, Lookup, PvcSettings};
use super::plan::{Planned, looked_up};
use crate::clone::{self, NOT_MET};
use crate::event::Event;
use crate::{claim, classes, config, copy, meta, virtual_size};

/// Reason of the event while the size of a source is not known.
const NOT_READY: &str = "ImportPVCNotReady";

/// Writes the size into the PVC, unless its DataVolume has. `Err`: what blocks the clone.
pub(super) fn complete(
    facts: &DataVolumeFacts,
    source: &CloneSourceObject,
    object: &mut PersistentVolumeClaim,
) -> Planned<Result<(), Event>> {
    let settings = looked_up(facts.lookups.pvc_settings.as_ref(), || Lookup::PvcSettings)?;
    let sizing = Sizing { facts, settings };
    let requested = meta::requested(object).and_then(meta::bytes).filter(|size| size.get() > 0);
    if let Some(requested) = requested {
        return ControlFlow::Continue(sizing.compare(source, requested, object));
    }
    // The webhook for PVCs completes it, from the source itself.
    if meta::requested(object).is_none() {
        return ControlFlow::Continue(Ok(()));
    }
    let size = match sizing.inferred(source, object)? {
        Ok(size) => size,
        Err(event) => return ControlFlow::Continue(Err(event)),
    };
    let spec = object.spec.get_or_insert_default();
    let resources = spec.resources.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    requests.insert("storage".into(), claim::quantity(size));
    if let CloneSourceObject::Claim(source) = source
        && meta::requested(source).and_then(meta::bytes).is_some_and(|needed| needed > size)
    {
        // The size of the disk is known, and the rest of the source is its file system.
        permit_smaller(object);
    }
    ControlFlow::Continue(Ok(()))
}

fn permit_smaller(object: &mut PersistentVolumeClaim) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(request::PERMISSIVE_CLONE.into(), "true".into());
}

struct Sizing<'a> {
    facts: &'a DataVolumeFacts,
    settings: &'a PvcSettings,
}

impl Sizing<'_> {
    fn compare(
        &self,
        source: &CloneSourceObject,
        requested: ByteCount,
        object: &mut PersistentVolumeClaim,
    ) -> Result<(), Event> {
        let is_permissive = meta::has_annotation(&object.metadata, request::PERMISSIVE_CLONE);
        let needed = match source {
            CloneSourceObject::Claim(source) => meta::requested(source).and_then(meta::bytes),
            CloneSourceObject::Snapshot(snapshot) => snapshot.restore_size().and_then(meta::bytes),
        };
        let Some(needed) = needed.filter(|needed| *needed > requested && !is_permissive) else {
            return Ok(());
        };
        if let CloneSourceObject::Claim(source) = source {
            // A disk in a file system is smaller than its PVC, and a device need be no larger than the disk.
            let is_file = self.facts.volume.spec.storage.is_some() && !meta::is_block(source);
            let disk = self.usable_size(source).filter(|_| is_file);
            if meta::is_block(object) && disk.is_some_and(|disk| disk <= requested) {
                permit_smaller(object);
                return Ok(());
            }
        }
        let message = format!(
            "{NOT_MET} target resources requests storage size is smaller than the source: {requested} < {needed}"
        );
        Err(Event::warning(events::CLONE_VALIDATION_FAILED, message))
    }

    /// As large as the disk in the source, where its size is recorded, else as the source; with overhead for a file system
    /// where that is of a device or of a disk. To measure the disk would take a pod, and save what a file system uses.
    fn inferred(
        &self,
        source: &CloneSourceObject,
        object: &PersistentVolumeClaim,
    ) -> Planned<Result<ByteCount, Event>> {
        let (size, mode) = match source {
            CloneSourceObject::Claim(source) => {
                if let Some(disk) = disk_size(source) {
                    return ControlFlow::Continue(Ok(self.size_for_disk(disk, object)));
                }
                let requested = meta::requested(source).and_then(meta::bytes);
                let Some(capacity) = capacity(source) else {
                    let name = meta::name(&source.metadata);
                    let message =
                        format!("The source pvc {name} is not bound, and its size is not known");
                    return ControlFlow::Continue(Err(Event::normal(NOT_READY, message)));
                };
                (capacity.max(requested.unwrap_or(capacity)), clone::mode_of(source))
            }
            CloneSourceObject::Snapshot(snapshot) => {
                let size = snapshot.restore_size().and_then(meta::bytes);
                let Some(size) = size.filter(|size| size.get() > 0) else {
                    let name = meta::name(&snapshot.metadata);
                    let message =
                        format!("{NOT_MET} snapshot {name} does not report its restore size");
                    let event = Event::warning(events::CLONE_VALIDATION_FAILED, message);
                    return ControlFlow::Continue(Err(event));
                };
                let content = self.facts.lookups.snapshot_content.as_ref();
                let content = looked_up(content, || Lookup::SnapshotContent(Arc::clone(snapshot)))?;
                let mode = clone::state_of(snapshot, content.as_ref()).mode;
                (size, mode.unwrap_or(ClaimVolumeMode::Filesystem))
            }
        };
        ControlFlow::Continue(Ok(match mode {
            ClaimVolumeMode::Block => self.size_for_disk(size, object),
            ClaimVolumeMode::Filesystem => self.at_least_minimum(size, object),
        }))
    }

    /// The size of a PVC that has space for a disk.
    fn size_for_disk(&self, disk: ByteCount, object: &PersistentVolumeClaim) -> ByteCount {
        let with_file_system = || {
            let overhead =
                config::overhead_of(self.status(), &self.facts.classes, class_name(object));
            overhead.pvc_for_disk(disk).unwrap_or(disk)
        };
        let size = if meta::is_block(object) { disk } else { with_file_system() };
        self.at_least_minimum(size, object)
    }

    /// Not less than the minimum PVC size of the class.
    fn at_least_minimum(&self, size: ByteCount, object: &PersistentVolumeClaim) -> ByteCount {
        let is_of_class =
            |profile: &&StorageProfile| Some(meta::name(&profile.metadata)) == class_name(object);
        let profile = self.settings.profiles.iter().find(is_of_class);
        size.max(config::minimum_size(profile).unwrap_or(size))
    }

    /// How large a disk in this PVC can be.
    fn usable_size(&self, claim: &PersistentVolumeClaim) -> Option<ByteCount> {
        let size = meta::requested(claim).and_then(meta::bytes)?;
        if meta::is_block(claim) {
            return Some(size);
        }
        let all = &self.facts.classes;
        let named = class_name(claim)
            .or_else(|| classes::default(all).map(|class| meta::name(&class.metadata)));
        Some(config::overhead_of(self.status(), all, named).usable(size))
    }

    fn status(&self) -> Option<&api::v1beta1::CdiConfigStatus> {
        self.settings.config.as_ref().and_then(|config| config.status.as_ref())
    }
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<ByteCount> {
    meta::bytes(claim.status.as_ref()?.capacity.as_ref()?.get("storage")?)
}

/// The size of the disk in a file system, as its worker has recorded it.
fn disk_size(source: &PersistentVolumeClaim) -> Option<ByteCount> {
    let is_disk = copy::content_of(&source.metadata) == ContentType::Kubevirt.as_str();
    virtual_size::noted(source).filter(|_| is_disk)
}
