//! The objects of the API as they are on the wire: names, fields and rules that existing manifests and clients rely on.
//!
//! Types decode what a cluster may send, unknown fields included; [`document::read`] is strict, as `kubectl apply` is.
//! No client and no decision lives here.

pub mod claim;
pub mod data_volume;
pub mod document;
pub mod metadata;
pub mod secrets;
pub mod validate;

pub use claim::{ClaimSpec, VolumeMode};
pub use data_volume::{
    ContentType, DataVolume, DataVolumeSpec, HttpSource, RegistrySource, Source, Sources,
};
pub use document::{Document, read};
pub use metadata::ObjectMeta;
pub use secrets::{ConfigMap, Secret};
pub use validate::{Invalid, validate};
