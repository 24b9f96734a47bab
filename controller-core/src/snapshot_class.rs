//! VolumeSnapshotClass, with the fields that are read. `k8s-openapi` has no type for it.

use std::borrow::Cow;

use api::annotations::request;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use crate::meta::{self, Pairs};
use crate::storage_profile::SnapshotClass;

/// How snapshots are taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeSnapshotClass {
    pub metadata: ObjectMeta,
    pub driver: String,
    /// For the driver.
    #[serde(default)]
    pub parameters: Option<Pairs>,
}

impl Resource for VolumeSnapshotClass {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "VolumeSnapshotClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "snapshot.storage.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "volumesnapshotclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VolumeSnapshotClass {
    /// The form that plans read.
    pub fn to_fact(&self) -> SnapshotClass {
        SnapshotClass {
            name: meta::name(&self.metadata).to_owned(),
            driver: self.driver.clone(),
            is_default: meta::is_true(&self.metadata, request::DEFAULT_SNAPSHOT_CLASS),
            parameters: self.parameters.clone().unwrap_or_default(),
        }
    }
}
