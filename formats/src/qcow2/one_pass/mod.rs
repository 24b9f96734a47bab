//! An image read from its first byte to its last, once.

mod output;

use std::io;

pub use output::Output;

use super::header::Header;
use crate::Error;

/// How much may be remembered. Nothing else grows with the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for what is known of the file: which of the bytes to come belong where, and what is parked where.
    pub index_bytes: usize,
    /// Bytes parked in memory before the target is used for that.
    pub parked_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { index_bytes: 12 << 20, parked_bytes: 4 << 20 }
    }
}

/// Why one pass ended early. The target then holds neither the disk nor zeroes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnePassError {
    /// The image is refused.
    #[error(transparent)]
    Image(#[from] Error),
    /// The output failed.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The image may be fine, but its bytes have to be read in another order than they came in.
    #[error("the image cannot be read in one pass: {because}")]
    NeedsRandomAccess {
        /// What stood in the way.
        because: String,
    },
}

/// Decodes an image whose bytes come in order and only once.
#[derive(Debug)]
pub struct OnePass {
    header: Header,
    limits: Limits,
}

impl OnePass {
    /// Begins at the file's first byte. The header has been parsed from a copy of it.
    pub fn new(header: Header, limits: Limits) -> Self {
        Self { header, limits }
    }

    /// Takes the next bytes of the file, any number of them, and hands over what they are to `output`.
    ///
    /// # Errors
    /// See [`OnePassError`]. Nothing may be supplied after one.
    pub fn supply(&mut self, chunk: &[u8], output: &mut dyn Output) -> Result<(), OnePassError> {
        let _ = (chunk, output, &self.header, self.limits);
        Err(OnePassError::NeedsRandomAccess { because: "not yet".into() })
    }

    /// The file has ended. Hands over what is left and clears what is still parked.
    ///
    /// # Errors
    /// See [`OnePassError`]; in particular when bytes never came that hold data of the guest.
    pub fn finish(self, output: &mut dyn Output) -> Result<(), OnePassError> {
        let _ = output;
        Ok(())
    }
}
