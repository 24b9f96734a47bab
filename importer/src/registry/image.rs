//! From a reference to an image: through indexes to one manifest and its config.

use contract::Checksum;

use super::archive::ArchiveFile;
use super::image_error::ContainerImageError;
use super::manifest::{Config, Contents, Document, choose, own_architecture};
use super::options::RegistryOptions;
use super::reference::{Location, Reference};
use super::store::{Fetched, Remote, Store};
use crate::error::Error;
use crate::web::HttpOptions;

/// Indexes in indexes, and the manifest.
const DOCUMENTS_MAX: usize = 4;

/// One image, chosen and acceptable.
pub(super) struct Image {
    pub(super) store: Store,
    /// Of the manifest.
    pub(super) digest: Checksum,
    pub(super) config: Config,
    pub(super) contents: Contents,
}

impl Image {
    pub(super) fn open(location: &Location, options: &HttpOptions) -> Result<Self, Error> {
        match location {
            Location::Registry(reference) => Self::pull(reference, options),
            Location::Archive(reference) => {
                let archive = ArchiveFile::open(reference)?;
                let descriptor = archive.find(reference.name.as_deref())?;
                let store = Store::Archive(archive);
                let first = store.document(&descriptor)?;
                Self::resolve(store, first, &options.registry)
            }
        }
    }

    fn pull(reference: &Reference, options: &HttpOptions) -> Result<Self, Error> {
        let remote = Box::new(Remote::new(reference, options)?);
        let first = remote.document(&reference.version)?;
        Self::resolve(Store::Registry(remote), first, &options.registry)
    }

    fn resolve(store: Store, first: Fetched, options: &RegistryOptions) -> Result<Self, Error> {
        let requested = options.architecture.as_deref();
        let wanted = requested.unwrap_or(own_architecture());
        let mut fetched = first;
        for _ in 0..DOCUMENTS_MAX {
            match Document::parse(&fetched.bytes, fetched.content_type.as_deref())? {
                Document::Index(instances) => {
                    fetched = store.document(choose(&instances, wanted)?)?;
                }
                Document::Manifest(manifest) => {
                    let config = if manifest.is_container() {
                        let config = Config::parse(&store.small_blob("config", &manifest.config)?)?;
                        config.check(requested)?;
                        config
                    } else {
                        Config::default()
                    };
                    let (digest, contents) = (fetched.digest, manifest.contents()?);
                    return Ok(Self { store, digest, config, contents });
                }
            }
        }
        let because = format!("indexes lie more than {} deep", DOCUMENTS_MAX - 1);
        Err(ContainerImageError::Document { what: "index", because }.into())
    }
}
