//! The objects of the API as they are on the wire: names, fields and rules that existing manifests and clients rely on.
//!
//! Two families of types. Those of [`document::read`] are for manifests that are not validated yet, as in `cdi apply`: they
//! accept almost any value, and [`validate()`] reports what is wrong. Those of `v1beta1` (feature
//! `cluster`) are for objects that an API server has accepted; the CRDs are generated from them. The rest is names.
//!
//! No client and no decision lives here.

#![warn(missing_docs)]

pub mod annotations;
pub mod claim;
pub mod conditions;
pub mod data_volume;
pub mod document;
pub mod events;
pub mod labels;
pub mod metadata;
pub mod names;
pub mod phases;
pub mod secrets;
#[cfg(feature = "cluster")]
pub mod v1beta1;
pub mod validate;

pub use claim::{ClaimSpec, VolumeMode};
pub use data_volume::{
    ContentType, DataVolume, DataVolumeSpec, HttpSource, RegistrySource, Source, Sources,
};
pub use document::{Document, read};
pub use metadata::ObjectMeta;
pub use phases::{ClaimPhase, Phase, PodPhase};
pub use secrets::{ConfigMap, Secret};
pub use validate::{Invalid, validate, validate_source, validate_spec};
