//! Which image a tag names now.

use contract::Checksum;

use super::image_error::ContainerImageError;
use super::reference::{Location, Reference};
use super::store::Remote;
use crate::error::Error;
use crate::web::HttpOptions;

/// The digest of what `docker://…` names now, be it an image or an index of images. `None`: it is still `known`.
pub(crate) fn newest_digest(
    location: &str,
    options: &HttpOptions,
    known: Option<&Checksum>,
) -> Result<Option<Checksum>, Error> {
    let reference: Reference = match Location::parse(location) {
        Some(Ok(Location::Registry(reference))) => reference,
        Some(Err(error)) => return Err(error),
        _ => {
            let because = "it is in no registry";
            return Err(ContainerImageError::Name { name: location.to_owned(), because }.into());
        }
    };
    Remote::new(&reference, options)?.digest(&reference.version, known)
}
