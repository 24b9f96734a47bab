//! The StorageProfile of a storage class.

mod key;
mod table;

use std::collections::BTreeSet;

use api::annotations::request;
use api::conditions::{self as wire, reason, status};
use api::labels;
use api::v1beta1::{
    ClaimPropertySet, ClaimVolumeMode, StorageProfile, StorageProfileSpec, StorageProfileStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use crate::conditions::{self, ConditionState};
use crate::meta::{self, Changes, Installation, Pairs};
use crate::object::ObjectRef;
use crate::plan::{StatusPatch, Write};
use crate::volume::PersistentVolume;

/// Provisioners whose classes are not for disks, so that their capabilities are not needed.
pub const UNSUPPORTED: [&str; 5] = [
    "openshift-storage.noobaa.io/obc",
    "openshift-storage.ceph.rook.io/bucket",
    "rook-ceph.ceph.rook.io/bucket",
    "stork-snapshot",
    NO_PROVISIONER,
];
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const COPY: &str = "copy";
const SNAPSHOT: &str = "snapshot";
const CLONE_STRATEGIES: [&str; 3] = [COPY, SNAPSHOT, "csi-clone"];
const CLAIM: &str = "pvc";

/// What a profile depends on.
pub struct Facts<'a> {
    pub class: &'a StorageClass,
    /// The present profile.
    pub profile: Option<&'a StorageProfile>,
    /// `None`: the cluster has no snapshot API.
    pub snapshot_classes: Option<&'a [SnapshotClass]>,
    /// Volumes of the class, for classes without a provisioner.
    pub volumes: &'a [PersistentVolume],
}

/// A VolumeSnapshotClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotClass {
    pub name: String,
    pub driver: String,
    /// It has the annotation of the default class.
    pub is_default: bool,
    /// For the driver.
    pub parameters: Pairs,
}

/// What to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// On the profile.
    pub annotations: Changes,
    /// All of it.
    pub status: StorageProfileStatus,
}

impl Plan {
    pub fn into_writes(self, profile: &StorageProfile) -> crate::plan::Plan {
        let status = (profile.status.as_ref() != Some(&self.status)).then(|| {
            let mut status = json!(self.status);
            // A merge patch keeps members that are not named.
            if self.status.snapshot_class.is_none() {
                status["snapshotClass"] = json!(null);
            }
            StatusPatch { target: ObjectRef::for_object(profile), status }
        });
        let writes = Write::annotations(profile, &self.annotations);
        crate::plan::Plan { status, ..crate::plan::Plan::writes(writes) }
    }
}

/// A profile without status.
pub fn new_profile(
    name: &str,
    installation: &Installation,
    owner: Option<OwnerReference>,
) -> StorageProfile {
    let mut labels = installation.labels();
    labels.insert(labels::COMPONENT.into(), String::new());
    StorageProfile {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: StorageProfileSpec::default(),
        status: None,
    }
}

/// Errors in the spec, which only the administrator can correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `spec.snapshotClass` names a class that does not exist.
    #[error("the VolumeSnapshotClass {name:?} of the StorageProfile's spec does not exist")]
    NoSuchSnapshotClass {
        /// What it names.
        name: String,
    },
    /// An entry of `spec.claimPropertySets` is incomplete.
    #[error("each ClaimPropertySet must provide both volume mode and access modes")]
    HalfPropertySet,
}

/// Annotations and status of the profile of a class.
///
/// # Errors
/// [`Error`], if the spec is invalid.
pub fn plan(facts: &Facts, now: Timestamp) -> Result<Plan, Error> {
    let class = facts.class;
    let parameters = class.parameters.clone().unwrap_or_default();
    let key = key::storage_profile_key(&class.provisioner, &parameters);
    let known = key.as_deref().and_then(table::capabilities);
    let spec = facts.profile.map(|profile| profile.spec.clone()).unwrap_or_default();
    let empty = ObjectMeta::default();
    let present = facts.profile.map_or(&empty, |profile| &profile.metadata);

    let snapshot_class = snapshot_class(facts, spec.snapshot_class.as_deref())?;
    let has_snapshots = snapshot_class.is_some();
    let sets = match spec.claim_property_sets.filter(|sets| !sets.is_empty()) {
        Some(sets) if sets.iter().any(|set| set.access_modes.is_empty()) => {
            return Err(Error::HalfPropertySet);
        }
        Some(sets) => sets,
        None if class.provisioner == NO_PROVISIONER => sets_of(facts.volumes),
        None => known.map(|known| known.sets).unwrap_or_default().iter().map(one_set).collect(),
    };
    let advised_format = known.is_some_and(|known| known.cron_snapshots) && has_snapshots;

    let mut annotations = Changes::default();
    if let Some(size) = known.and_then(|known| known.minimum_size)
        && !meta::has_annotation(present, request::MINIMUM_CLAIM_SIZE)
    {
        annotations.set(present, request::MINIMUM_CLAIM_SIZE, size);
    }
    if known.is_some_and(|known| known.cron_read_write_once)
        && !meta::has_annotation(present, request::CRON_READ_WRITE_ONCE)
    {
        annotations.set(present, request::CRON_READ_WRITE_ONCE, "true");
    }
    let cron_class = cron_snapshot_class(facts, key.as_deref());
    annotations.put(present, request::CRON_SNAPSHOT_CLASS, cron_class);

    let mut all_conditions = facts
        .profile
        .and_then(|profile| profile.status.as_ref()?.conditions.clone())
        .unwrap_or_default();
    let is_known = known.is_some_and(|known| !known.sets.is_empty());
    conditions::set(
        &mut all_conditions,
        wire::RECOGNIZED,
        &recognized(key.is_some(), is_known),
        now,
    );

    let status = StorageProfileStatus {
        storage_class: Some(meta::name(&class.metadata).to_owned()),
        provisioner: Some(class.provisioner.clone()),
        clone_strategy: Some(clone_strategy(
            spec.clone_strategy.as_deref(),
            meta::annotation(&class.metadata, request::CLONE_STRATEGY),
            known.and_then(|known| known.clone_strategy),
            has_snapshots,
        )),
        claim_property_sets: Some(sets),
        data_import_cron_source_format: Some(
            spec.data_import_cron_source_format
                .unwrap_or_else(|| if advised_format { SNAPSHOT } else { CLAIM }.to_owned()),
        ),
        snapshot_class,
        conditions: Some(all_conditions),
    };
    Ok(Plan { annotations, status })
}

/// As configured on the profile or the class; else the advised one. Without a snapshot class, snapshots are not
/// advised.
fn clone_strategy(
    spec: Option<&str>,
    class: Option<&str>,
    known: Option<&str>,
    has_snapshots: bool,
) -> String {
    let configured = spec.or(class.filter(|strategy| CLONE_STRATEGIES.contains(strategy)));
    let advised = || match known.unwrap_or(SNAPSHOT) {
        SNAPSHOT if !has_snapshots => COPY,
        strategy => strategy,
    };
    configured.unwrap_or_else(advised).to_owned()
}

/// The one that the spec names, if it is of this storage; else the default one, else the first by name.
fn snapshot_class(facts: &Facts, named: Option<&str>) -> Result<Option<String>, Error> {
    let Some(classes) = facts.snapshot_classes else { return Ok(None) };
    let driver = facts.class.provisioner.as_str();
    if let Some(name) = named {
        let class = classes.iter().find(|class| class.name == name);
        let class = class.ok_or_else(|| Error::NoSuchSnapshotClass { name: name.to_owned() })?;
        return Ok((class.driver == driver).then(|| class.name.clone()));
    }
    Ok(first(classes.iter().filter(|class| class.driver == driver)).map(str::to_owned))
}

/// Google's disks have a kind of snapshots that is optimized for frequent restores.
fn cron_snapshot_class<'a>(facts: &Facts<'a>, key: Option<&str>) -> Option<&'a str> {
    let driver = "pd.csi.storage.gke.io";
    let fits = |class: &&SnapshotClass| {
        class.driver == driver
            && class.parameters.get("snapshot-type").is_some_and(|kind| kind == "images")
    };
    let is_google =
        key.is_some_and(|key| key == driver || key == "pd.csi.storage.gke.io/hyperdisk");
    first(facts.snapshot_classes.filter(|_| is_google)?.iter().filter(fits))
}

fn first<'a>(classes: impl Iterator<Item = &'a SnapshotClass>) -> Option<&'a str> {
    let class = classes.min_by_key(|class| (!class.is_default, class.name.as_str()))?;
    Some(&class.name)
}

fn one_set((access, volume_mode): &table::Set) -> ClaimPropertySet {
    ClaimPropertySet { access_modes: vec![(*access).to_owned()], volume_mode: *volume_mode }
}

/// Access modes and volume modes of volumes that an administrator has created, in alphabetical order.
fn sets_of(volumes: &[PersistentVolume]) -> Vec<ClaimPropertySet> {
    let mut found = BTreeSet::new();
    for spec in volumes.iter().filter_map(|volume| volume.spec.as_ref()) {
        let mode = match spec.volume_mode.as_deref() {
            Some("Block") => ClaimVolumeMode::Block,
            _ => ClaimVolumeMode::Filesystem,
        };
        found.extend(spec.access_modes.iter().flatten().map(|access| (access.clone(), mode)));
    }
    let set = |(access, volume_mode)| ClaimPropertySet { access_modes: vec![access], volume_mode };
    found.into_iter().map(set).collect()
}

fn recognized(parameters_are_known: bool, storage_is_known: bool) -> ConditionState {
    if !parameters_are_known {
        let message = "Storage class parameters are not recognized";
        ConditionState::new(status::FALSE, reason::UNRECOGNIZED_PARAMETERS, message)
    } else if storage_is_known {
        ConditionState::new(
            status::TRUE,
            reason::RECOGNIZED_PROVISIONER,
            "Provisioner is recognized",
        )
    } else {
        ConditionState::new(
            status::FALSE,
            reason::UNRECOGNIZED_PROVISIONER,
            "Provisioner is not recognized",
        )
    }
}

#[cfg(test)]
mod tests;
