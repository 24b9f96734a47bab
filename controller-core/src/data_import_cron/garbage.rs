//! What is deleted: imports that newer ones have replaced, and what goes with a DataImportCron.

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

/// Imports that are kept where nothing is said.
const IMPORTS_TO_KEEP: usize = 3;

/// Everything of a namespace that may be a DataImportCron's.
#[derive(Clone, Copy, Debug)]
pub struct Belongings<'a> {
    /// DataVolumes.
    pub volumes: &'a [DataVolume],
    /// Claims.
    pub claims: &'a [PersistentVolumeClaim],
    /// VolumeSnapshots.
    pub snapshots: &'a [VolumeSnapshot],
    /// DataSources.
    pub sources: &'a [DataSource],
}

fn is_of(metadata: &ObjectMeta, cron: &str) -> bool {
    meta::label(metadata, labels::DATA_IMPORT_CRON) == Some(cron)
}

/// What has to go, the oldest first: more claims and more snapshots than are to be kept, by the time of their last use.
/// Never one of `kept`, whatever its age: those are the images in use.
pub(super) fn outdated(
    cron: &DataImportCron,
    all: &Belongings,
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
            // The claim goes with its DataVolume, which would only make it again.
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

/// What goes with a DataImportCron of this name that is deleted, or was: everything that its retention policy marked when
/// it was made. What belongs to a DataVolume that goes, goes with it.
pub fn cleanup(cron: &str, all: &Belongings) -> Vec<Change> {
    let goes = |metadata: &ObjectMeta| {
        is_of(metadata, cron)
            && meta::label(metadata, labels::DATA_IMPORT_CRON_CLEANUP) == Some("true")
            && metadata.deletion_timestamp.is_none()
    };
    let mut changes = Vec::new();
    let mut delete = |kind, metadata: &ObjectMeta| {
        if goes(metadata) {
            changes.push(Change::Delete(kind, meta::name(metadata).to_owned()));
        }
    };
    all.sources.iter().for_each(|source| delete(Kind::Source, &source.metadata));
    all.volumes.iter().for_each(|volume| delete(Kind::Volume, &volume.metadata));
    all.claims.iter().for_each(|claim| delete(Kind::Claim, &claim.metadata));
    all.snapshots.iter().for_each(|snapshot| delete(Kind::Snapshot, &snapshot.metadata));
    changes
}
