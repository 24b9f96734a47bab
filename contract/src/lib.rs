//! What a controller and its workers agree on.

use std::fmt;

/// A count of bytes: of a volume, an image, a write. (`Bytes` names the HTTP stack's buffers.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(u64);

impl ByteCount {
    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many times 2^20 bytes.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// What an image has to hash to, written `algorithm:hex`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum(String);
