//! Kinds with types of this crate: snapshots, their contents and the kinds of OpenShift, which `k8s-openapi` has not,
//! and volumes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;

use crate::openshift::{Infrastructure, Proxy, Route};
use crate::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use crate::volume::PersistentVolume;

/// The group of snapshots.
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
/// The group of Routes.
const ROUTES: &str = "route.openshift.io";
/// The group of the configuration of an OpenShift cluster.
const SETUP: &str = "config.openshift.io";
/// The group without a name.
const CORE: &str = "";

macro_rules! kinds {
    ($($kind:ident $group:ident $plural:literal $scope:ty;)*) => { $(
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    )* };
}

kinds! {
    VolumeSnapshot SNAPSHOTS "volumesnapshots" NamespaceResourceScope;
    VolumeSnapshotContent SNAPSHOTS "volumesnapshotcontents" ClusterResourceScope;
    PersistentVolume CORE "persistentvolumes" ClusterResourceScope;
    Route ROUTES "routes" NamespaceResourceScope;
    Infrastructure SETUP "infrastructures" ClusterResourceScope;
    Proxy SETUP "proxies" ClusterResourceScope;
}
