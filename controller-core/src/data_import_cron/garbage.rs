//! Which objects are deleted: imports that newer ones have replaced, and the objects of a deleted DataImportCron.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use api::labels;
use api::v1beta1::{DataImportCron, DataSource, DataVolume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::state::last_use;
use super::{Change, Kind};
use crate::meta;
use crate::snapshot::VolumeSnapshot;

/// The default of `importsToKeep`.
const IMPORTS_TO_KEEP: usize = 3;

/// All objects of a namespace that may belong to a DataImportCron.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceObjects<'a> {
    pub volumes: &'a [DataVolume],
    pub claims: &'a [PersistentVolumeClaim],
    pub snapshots: &'a [VolumeSnapshot],
    pub sources: &'a [DataSource],
}

fn is_of(metadata: &ObjectMeta, cron: &str) -> bool {
    meta::label(metadata, labels::DATA_IMPORT_CRON) == Some(cron)
}

/// The imports to delete, the oldest first: PVCs and snapshots beyond `importsToKeep`, by the time of their last use.
/// Never one of `kept`, whatever its age: those are the images in use.
pub(super) fn outdated(
    cron: &DataImportCron,
    all: &NamespaceObjects,
    kept: &BTreeSet<&str>,
) -> Vec<Change> {
    if cron.spec.garbage_collect.as_deref() == Some("Never") {
        return Vec::new();
    }
    let name = meta::name(&cron.metadata);
    let count = cron.spec.imports_to_keep.and_then(|count| usize::try_from(count).ok());
    let count = count.unwrap_or(IMPORTS_TO_KEEP);
    let volume =
        |name: &str| all.volumes.iter().find(|volume| meta::name(&volume.metadata) == name);
    let claims = beyond(all.claims.iter().map(|claim| &claim.metadata), name, count, kept);
    let mut changes: Vec<_> = claims
        .map(|claim| {
            // The PVC is deleted with its DataVolume, which would create it again otherwise.
            let kind = if volume(&claim).is_some() { Kind::Volume } else { Kind::Claim };
            Change::Delete(kind, claim)
        })
        .collect();
    let snapshots = all.snapshots.iter().map(|snapshot| &snapshot.metadata);
    changes.extend(
        beyond(snapshots, name, count, kept).map(|name| Change::Delete(Kind::Snapshot, name)),
    );

    let own = all.volumes.iter().filter(|volume| is_of(&volume.metadata, name));
    let own: Vec<_> = own.map(|volume| meta::name(&volume.metadata)).collect();
    if own.len() > count.max(1) {
        let claims = all.claims.iter().filter(|claim| is_of(&claim.metadata, name));
        let claims: BTreeSet<_> = claims.map(|claim| meta::name(&claim.metadata)).collect();
        let stray = own.into_iter().filter(|name| !kept.contains(name) && !claims.contains(name));
        changes.extend(stray.map(|name| Change::Delete(Kind::Volume, name.to_owned())));
    }
    changes
}

fn beyond<'a>(
    objects: impl Iterator<Item = &'a ObjectMeta>,
    cron: &str,
    count: usize,
    kept: &BTreeSet<&str>,
) -> impl Iterator<Item = String> {
    let stays = |metadata: &&ObjectMeta| metadata.deletion_timestamp.is_none();
    let mut own: Vec<_> = objects.filter(|object| is_of(object, cron)).filter(stays).collect();
    own.sort_by_key(|object| (Reverse(last_use(object)), meta::name(object)));
    let names: Vec<_> = own.into_iter().skip(count).map(meta::name).collect();
    let old = names.into_iter().rev().filter(|name| !kept.contains(name));
    old.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Deletes the objects of a DataImportCron of this name that is terminating or gone: those that got the cleanup label
/// from its retention policy. Objects that a deleted DataVolume owns are garbage-collected.
pub fn cleanup(cron: &str, all: &NamespaceObjects) -> Vec<Change> {
    let is_deleted = |metadata: &ObjectMeta| {
        is_of(metadata, cron)
            && meta::label(metadata, labels::DATA_IMPORT_CRON_CLEANUP) == Some("true")
            && metadata.deletion_timestamp.is_none()
    };
    let mut changes = Vec::new();
    let mut delete = |kind, metadata: &ObjectMeta| {
        if is_deleted(metadata) {
            changes.push(Change::Delete(kind, meta::name(metadata).to_owned()));
        }
    };
    all.sources.iter().for_each(|source| delete(Kind::Source, &source.metadata));
    all.volumes.iter().for_each(|volume| delete(Kind::Volume, &volume.metadata));
    all.claims.iter().for_each(|claim| delete(Kind::Claim, &claim.metadata));
    all.snapshots.iter().for_each(|snapshot| delete(Kind::Snapshot, &snapshot.metadata));
    changes
}
