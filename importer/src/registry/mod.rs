//! Container disks: images in registries and OCI archives that hold a virtual machine's disk.
//!
//! A registry's documents are few and small ([`store`], [`manifest`]); its blobs come through the range engine of
//! [`crate::web`] like any other image. The disk streams out of its layer ([`disk`]), and nothing is stored in between.
//! Whatever is named by a digest is verified, addresses in manifests are never followed, and no tool is run.

mod archive;
mod credentials;
mod disk;
mod image;
mod image_error;
mod labels;
mod layer;
mod manifest;
mod newest;
mod options;
mod reference;
mod served;
mod store;

pub use credentials::Credentials;
pub use disk::{ContainerDisk, ImageInfo};
pub use image_error::ContainerImageError;
pub use labels::labels;
pub(crate) use newest::newest_digest;
pub use options::{Mirror, RegistryOptions};
pub(crate) use reference::Location;
pub use served::served_environment;
