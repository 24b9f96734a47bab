//! Errors of the operating system, with the texts that users and controllers know.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::error::Error;

/// Adds to an error what was tried.
pub trait Doing<T> {
    /// `what` is a verb that goes before the path: `create`, `make durable`.
    fn doing(self, what: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|source| failed(what, path, source))
    }
}

/// An error of doing `what` to `path`.
pub fn failed(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Target { what, path: path.to_owned(), source: plain(source) }
}

/// An error with a text of ours.
pub fn refused(what: &'static str, path: &Path, because: &'static str) -> Error {
    failed(what, path, io::Error::new(io::ErrorKind::InvalidInput, because))
}

/// Whether a file system, or the part of it that a quota allows, has no space left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Lack of space, with the text by which upstream CDI's controller recognizes a volume that is too small.
pub fn plain(error: io::Error) -> io::Error {
    let errno = error.raw_os_error();
    let is = |other: Errno| errno == Some(other.raw_os_error());
    if is(Errno::NOSPC) {
        io::Error::new(io::ErrorKind::StorageFull, "no space left on device")
    } else if is(Errno::DQUOT) {
        io::Error::new(io::ErrorKind::QuotaExceeded, "disk quota exceeded")
    } else {
        error
    }
}
