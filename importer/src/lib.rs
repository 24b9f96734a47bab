//! Where images come from: web servers, object stores, registries and local files, each behind [`pipeline::Source`].
//!
//! A source implements its protocol and knows nothing of image formats. It handles redirects, expired addresses, broken
//! and stalled connections and busy servers; the pipeline sees only bytes, or an [`Error`] that names the location.
//! Credentials appear in no error, no log and no `Debug` output.

mod error;
mod failure_kind;
mod file;
mod gcs;
pub mod image_server;
mod imageio;
mod nbd;
mod newest;
mod objects;
pub mod pod;
pub mod poller;
pub mod populator;
mod receive_buffer;
mod receive_limit;
mod registry;
mod s3;
mod secret;
mod size;
mod stage;
mod sys;
mod vddk;
mod web;

use std::sync::Arc;

pub use error::{Error, Next, TransportError};
pub use failure_kind::FailureKind;
pub use file::FileSource;
pub use gcs::{GcsCredentials, GcsOptions, gcs_location};
pub use imageio::{ImageioSettings, Intervals, imageio};
pub use nbd::NbdSource;
pub use newest::{KnownRevision, LatestImage, newest};
use pipeline::Source;
pub use receive_limit::ReceiveLimit;
pub use registry::{
    ContainerDisk, ContainerImageError, Credentials, ImageInfo, Mirror, RegistryOptions, labels,
    served_environment,
};
pub use s3::{S3Credentials, S3Options, s3_location};
pub use secret::{RedactedUrl, Secret};
pub use size::size_of_disk;
pub use stage::{Checkpoints, StageSource, StopFlag};
pub use vddk::{VddkSettings, VddkWatch, vddk};
pub use web::{
    BadCidr, BasicAuth, CallLimit, CancelOnDrop, Cidr, DeniedAddress, DialExceptions, DialPolicy,
    ExtraHeader, HttpConnector, HttpOptions, HttpSource, HttpValidators, ProxySettings,
    RetryPolicy, Warned,
};

/// Opens `location`: an `http://` or `https://` address, an object as `s3://bucket/key` or `gs://bucket/object`, an image
/// `docker://…` or `oci-archive:…`, an NBD export (see [`NbdSource::connect`]), `-` for standard input, or a path
/// (`file://` works too).
///
/// # Errors
/// When the address cannot be understood or reached, or the file cannot be opened.
pub fn source(location: &str, options: &HttpOptions) -> Result<Arc<dyn Source>, Error> {
    if registry::Location::parse(location).is_some() {
        return Ok(Arc::new(ContainerDisk::open(location, options)?));
    }
    match scheme_of(location) {
        Some("http" | "https") => Ok(Arc::new(HttpSource::connect(location, options)?)),
        Some("s3") => Ok(Arc::new(s3::source(location, &options.s3, options)?)),
        Some("gs") => Ok(Arc::new(gcs::source(location, &options.gcs, options)?)),
        Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => {
            Ok(Arc::new(NbdSource::connect(location, options)?))
        }
        Some("file") => Ok(Arc::new(FileSource::open(file::path_of(location)?)?)),
        Some(other) => Err(Error::Scheme { scheme: other.to_owned() }),
        None if location == "-" => Ok(Arc::new(FileSource::standard_input()?)),
        None => Ok(Arc::new(FileSource::open(location)?)),
    }
}

/// `location` fit to be shown: an address without credentials and query, a path as it is.
pub fn name_of(location: &str) -> String {
    match scheme_of(location) {
        // Has no user and no query, and an `@` before its digest.
        Some("docker") => location.escape_debug().to_string(),
        Some("s3" | "gs") if !location.contains('@') => location.escape_debug().to_string(),
        Some(_) => RedactedUrl::of_text(location).to_string(),
        None if location == "-" => "standard input".to_owned(),
        None => location.to_owned(),
    }
}

/// What stands before `://`, in lower case where it is one that is known. A path may contain a colon.
fn scheme_of(location: &str) -> Option<&str> {
    let (scheme, _) = location.split_once("://")?;
    let legal = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let known = ["http", "https", "s3", "gs", "nbd", "nbds", "nbd+unix", "nbds+unix", "file"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(scheme));
    known.or_else(|| legal(scheme).then_some(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_an_address_only_with_a_scheme() {
        let table = [
            ("http://host/a", Some("http")),
            ("HTTPS://host/a", Some("https")),
            ("file:///a", Some("file")),
            ("s3://bucket/a", Some("s3")),
            ("disk.img", None),
            ("./odd:name", None),
            ("a b://c", None),
            ("-", None),
        ];
        for (location, expected) in table {
            assert_eq!(scheme_of(location), expected, "{location}");
        }
    }

    #[test]
    fn a_location_is_shown_without_its_secrets() {
        let table = [
            ("https://user:word@host/a?sig=word", "https://host/a"),
            ("s3://key:word@bucket/a", "s3://bucket/a"),
            ("s3://bucket/a?b#c", "s3://bucket/a?b#c"),
            ("./a@b?c#d", "./a@b?c#d"),
            ("-", "standard input"),
        ];
        for (location, expected) in table {
            assert_eq!(name_of(location), expected);
        }
    }

    #[test]
    fn an_unknown_scheme_is_refused_by_name() {
        let error = source("ftp://host/disk.img", &HttpOptions::default()).err().expect("refused");
        assert_eq!(
            error.to_string(),
            "cannot import from ftp:// addresses, only from http, https, s3, gs, docker, nbd and files"
        );
    }
}
