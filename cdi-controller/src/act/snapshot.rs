//! VolumeSnapshots and their contents as kinds of the API server, which Kubernetes itself has no types for.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;

use crate::snapshot::{VolumeSnapshot, VolumeSnapshotContent};

macro_rules! snapshot_kinds {
    ($($kind:ident $plural:literal $scope:ty;)*) => { $(
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                "snapshot.storage.k8s.io".into()
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

snapshot_kinds! {
    VolumeSnapshot "volumesnapshots" NamespaceResourceScope;
    VolumeSnapshotContent "volumesnapshotcontents" ClusterResourceScope;
}
