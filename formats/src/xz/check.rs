//! The check behind each block. Ours are several times as fast as those of the liblzma that is linked, which on a disk
//! of mostly zeroes would be a fifth of the work.

use crc64fast::Digest as Crc64;
use sha2::{Digest, Sha256};

pub(super) const CHECK_MAX: usize = 32;

/// Which check the blocks of a stream have.
#[derive(Clone, Copy, Debug)]
pub(super) enum CheckKind {
    None,
    Crc32,
    Crc64,
    Sha256,
}

impl CheckKind {
    /// By the number in a stream's flags. (The .xz File Format, section 2.1.1.2.)
    pub(super) fn from_number(number: u8) -> Option<Self> {
        match number {
            0x0 => Some(Self::None),
            0x1 => Some(Self::Crc32),
            0x4 => Some(Self::Crc64),
            0xa => Some(Self::Sha256),
            _ => None,
        }
    }

    pub(super) fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32 => 4,
            Self::Crc64 => 8,
            Self::Sha256 => CHECK_MAX,
        }
    }

    pub(super) fn start(self) -> Check {
        match self {
            Self::None => Check::None,
            Self::Crc32 => Check::Crc32(crc32fast::Hasher::new()),
            Self::Crc64 => Check::Crc64(Crc64::new()),
            Self::Sha256 => Check::Sha256(Sha256::new()),
        }
    }
}

/// A check over what was decoded so far.
pub(super) enum Check {
    None,
    Crc32(crc32fast::Hasher),
    Crc64(Crc64),
    Sha256(Sha256),
}

impl Check {
    pub(super) fn update(&mut self, content: &[u8]) {
        match self {
            Self::None => (),
            Self::Crc32(check) => check.update(content),
            Self::Crc64(check) => check.write(content),
            Self::Sha256(check) => check.update(content),
        }
    }

    /// Whether it is the one that was stored.
    pub(super) fn matches(&self, stored: &[u8]) -> bool {
        match self {
            Self::None => stored.is_empty(),
            Self::Crc32(check) => check.clone().finalize().to_le_bytes() == stored,
            Self::Crc64(check) => check.sum64().to_le_bytes() == stored,
            Self::Sha256(check) => check.clone().finalize()[..] == *stored,
        }
    }
}
