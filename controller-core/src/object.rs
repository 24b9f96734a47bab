//! Names of objects, references to them, and the kinds that controllers write.

use std::fmt;

use api::v1beta1::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, ObjectTransfer, StorageProfile,
    VolumeCloneSource, VolumeImportSource, VolumeUploadSource,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::Resource;

use crate::meta;
use crate::openshift::Proxy;
use crate::snapshot::VolumeSnapshot;
use crate::volume::PersistentVolume;

/// Namespace and name of an object. The namespace of a cluster-wide object is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => formatter.write_str(&self.name),
            namespace => write!(formatter, "{namespace}/{}", self.name),
        }
    }
}

/// A kind of object that a plan writes, or records events about.
pub trait Writable: Resource<DynamicType = ()> + Clone {
    const KIND: ObjectKind;
    fn into_object(self) -> Object;
    /// `None` for an object of another kind.
    fn from_object(object: Object) -> Option<Self>;
}

macro_rules! writable_kinds {
    ($($kind:ident),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ObjectKind { $($kind),* }

        /// An object of one of these kinds.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object { $($kind(Box<$kind>)),* }

        impl ObjectKind {
            /// `apiVersion` and `kind`, as on the wire.
            pub fn type_meta(self) -> (String, String) {
                match self {
                    $(Self::$kind => (
                        $kind::api_version(&()).into_owned(),
                        $kind::kind(&()).into_owned(),
                    )),*
                }
            }
        }

        impl Object {
            pub fn reference(&self) -> ObjectRef {
                match self { $(Self::$kind(object) => ObjectRef::for_object(object.as_ref())),* }
            }
        }

        $(impl Writable for $kind {
            const KIND: ObjectKind = ObjectKind::$kind;

            fn into_object(self) -> Object {
                Object::$kind(Box::new(self))
            }

            fn from_object(object: Object) -> Option<Self> {
                match object {
                    Object::$kind(object) => Some(*object),
                    _ => None,
                }
            }
        })*
    };
}

writable_kinds! {
    Cdi, CdiConfig, ConfigMap, CronJob, DataImportCron, DataSource, DataVolume, Job, ObjectTransfer,
    PersistentVolume, PersistentVolumeClaim, Pod, Proxy, Secret, Service, StorageProfile,
    VolumeCloneSource, VolumeImportSource, VolumeSnapshot, VolumeUploadSource,
}

/// An object as a plan saw it. Without a UID: whichever object has the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    pub kind: ObjectKind,
    pub key: Key,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl ObjectRef {
    pub fn for_object<K: Writable>(object: &K) -> Self {
        let metadata = object.meta();
        Self {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            ..Self::named::<K>(meta::namespace(metadata), meta::name(metadata))
        }
    }

    pub fn named<K: Writable>(namespace: &str, name: &str) -> Self {
        let key = Key::new(namespace, name);
        Self { kind: K::KIND, key, uid: None, resource_version: None }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.type_meta().1, self.key)
    }
}
