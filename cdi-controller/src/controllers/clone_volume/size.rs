//! How large the claim of a clone is, where its DataVolume does not say, and whether it is large enough where it does.

use api::annotations::request;
use api::events;
use api::v1beta1::{ClaimVolumeMode, ContentType, DataVolume};
use contract::ByteCount;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::super::clone_facts::{self as facts, Found};
use crate::engine::{Engine, Error};
use controller_core::clone::NOT_MET;
use controller_core::event::Event;
use controller_core::{claim, config, copy, meta, virtual_size};

/// What is told while the size of a source is not known.
const NOT_READY: &str = "ImportPVCNotReady";

/// Writes the size into the claim, unless its DataVolume has. What stands in the way is the inner error.
pub async fn complete(
    engine: &Engine,
    volume: &DataVolume,
    found: &Found,
    object: &mut PersistentVolumeClaim,
) -> Result<Result<(), Event>, Error> {
    let asked = meta::requested(object).and_then(meta::bytes).filter(|size| size.get() > 0);
    match asked {
        // Without a size, and completed by the webhook, which looks at the source itself.
        None if meta::requested(object).is_none() => Ok(Ok(())),
        None => Ok(match inferred(engine, found, object).await? {
            Ok(size) => {
                let spec = object.spec.get_or_insert_default();
                let resources = spec.resources.get_or_insert_default();
                let requests = resources.requests.get_or_insert_default();
                requests.insert("storage".into(), claim::quantity(size));
                let Found::Claim(source) = found else { return Ok(Ok(())) };
                if meta::requested(source).and_then(meta::bytes).is_some_and(|needed| needed > size)
                {
                    // The size of the disk is known, and the rest of the source is its file system.
                    let annotations = object.metadata.annotations.get_or_insert_default();
                    annotations.insert(request::PERMISSIVE_CLONE.into(), "true".into());
                }
                Ok(())
            }
            Err(event) => Err(event),
        }),
        Some(asked) => Ok(check(engine, volume, found, asked, object)),
    }
}

fn check(
    engine: &Engine,
    volume: &DataVolume,
    found: &Found,
    asked: ByteCount,
    object: &mut PersistentVolumeClaim,
) -> Result<(), Event> {
    let too_small = |needed: ByteCount| {
        let words = format!(
            "{NOT_MET} target resources requests storage size is smaller than the source: {asked} < {needed}"
        );
        Err(Event::warning(events::CLONE_VALIDATION_FAILED, words))
    };
    let is_permissive = meta::has_annotation(&object.metadata, request::PERMISSIVE_CLONE);
    match found {
        Found::Claim(source) => {
            let needed = meta::requested(source).and_then(meta::bytes);
            let Some(needed) = needed.filter(|needed| *needed > asked && !is_permissive) else {
                return Ok(());
            };
            // A disk in a file system is smaller than its claim, and a device need be no larger than the disk.
            let is_of_files = volume.spec.storage.is_some() && !meta::is_block(source);
            let disk = facts::room(engine, source).filter(|_| is_of_files);
            if meta::is_block(object) && disk.is_some_and(|disk| disk <= asked) {
                let annotations = object.metadata.annotations.get_or_insert_default();
                annotations.insert(request::PERMISSIVE_CLONE.into(), "true".into());
                return Ok(());
            }
            too_small(needed)
        }
        Found::Snapshot(snapshot) => {
            match snapshot.restore_size().and_then(meta::bytes).filter(|needed| *needed > asked) {
                Some(needed) if !is_permissive => too_small(needed),
                _ => Ok(()),
            }
        }
    }
}

/// As large as the disk in the source, where its size is noted, else as the source; with room for a file system where that
/// is of a device or of a disk. Looking into the source for the size of its disk would take a pod, and save what a file system
/// keeps for itself.
async fn inferred(
    engine: &Engine,
    found: &Found,
    object: &PersistentVolumeClaim,
) -> Result<Result<ByteCount, Event>, Error> {
    let (size, mode) = match found {
        Found::Claim(source) => {
            if let Some(disk) = disk_of(source) {
                return Ok(Ok(of_disk(engine, disk, object)));
            }
            let asked = meta::requested(source).and_then(meta::bytes);
            let Some(capacity) = facts::capacity(source) else {
                let name = meta::name(&source.metadata);
                let words =
                    format!("The source pvc {name} is not bound, and its size is not known");
                return Ok(Err(Event::normal(NOT_READY, words)));
            };
            (capacity.max(asked.unwrap_or(capacity)), controller_core::clone::mode_of(source))
        }
        Found::Snapshot(snapshot) => {
            let size = snapshot.restore_size().and_then(meta::bytes).filter(|size| size.get() > 0);
            let Some(size) = size else {
                let name = meta::name(&snapshot.metadata);
                let words = format!(
                    "{NOT_MET} snapshot {name} does not say how large a claim of it has to be"
                );
                return Ok(Err(Event::warning(events::CLONE_VALIDATION_FAILED, words)));
            };
            let content = facts::content_of(engine, snapshot).await?;
            let mode = controller_core::clone::state_of(snapshot, content.as_ref()).mode;
            (size, mode.unwrap_or(ClaimVolumeMode::Filesystem))
        }
    };
    Ok(Ok(match mode {
        ClaimVolumeMode::Block => of_disk(engine, size, object),
        ClaimVolumeMode::Filesystem => at_least(engine, size, object),
    }))
}

/// The size of a claim for a disk.
fn of_disk(engine: &Engine, disk: ByteCount, object: &PersistentVolumeClaim) -> ByteCount {
    let size = if meta::is_block(object) {
        disk
    } else {
        with_file_system(engine, disk, object).unwrap_or(disk)
    };
    at_least(engine, size, object)
}

/// Not less than the smallest claim of its class.
fn at_least(engine: &Engine, size: ByteCount, object: &PersistentVolumeClaim) -> ByteCount {
    let profile = facts::profile_of(engine, object);
    size.max(config::minimum_size(profile.as_deref()).unwrap_or(size))
}

/// The size of the disk in a file system, as the worker has noted that made it.
fn disk_of(source: &PersistentVolumeClaim) -> Option<ByteCount> {
    let is_disk = copy::content_of(&source.metadata) == ContentType::Kubevirt.as_str();
    virtual_size::noted(source).filter(|_| is_disk)
}

fn with_file_system(
    engine: &Engine,
    disk: ByteCount,
    object: &PersistentVolumeClaim,
) -> Option<ByteCount> {
    let settings = engine.config();
    let status = settings.as_ref().and_then(|config| config.status.as_ref());
    let class = object.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    config::overhead_of(status, &engine.classes(), class).pvc_for_disk(disk)
}
