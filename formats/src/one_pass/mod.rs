//! An image read once, from its first byte to its last.
//!
//! The tables give the guest address of each cluster. Where they precede the clusters, as `qemu-img convert` writes them,
//! the decoder finds the address of each cluster and passes it to the output without copying:
//!
//! ```text
//!            the expected regions, in the order of the file
//!            ┌──────────────────────────────────────────────────────────────────────────┐
//!   file ──► │ header │ L1 │ L2 │ data for 0 │ data for 3 │ L2 │ compressed, for 9 │ …  │
//!            └──────────┬────┬───────┬────────────┬─────────┬──────────┬────────────────┘
//!                       └────┴── parse ── output ─┴── parse ┴─ output ─┘
//! ```
//!
//! (`L1` is qcow2's name for the root of [`index`](crate::index), `L2` for a table.)
//!
//! But clusters may come before their tables: all of them, if the L1 table lies at the end (a disk that has grown) or the
//! L2 tables do (`preallocation=full`); many, after a snapshot; a few at each border between two L2 tables, if they are
//! compressed. Their guest address is unknown then, or whether they are in use at all. They are *parked*:
//!
//! 1. Zeroes take no space: only the index records them.
//! 2. Then memory, up to [`Limits::parked_bytes`]; all of a small image ([`Limits::whole_image_bytes`]).
//! 3. Then the target. Guest ranges that have not received their own data are free. No image has more clusters in use
//!    than its disk has.
//! 4. Then the target behind the disk, if it has space there ([`OnePass::with_space_behind`]): clusters that only
//!    snapshots use, and old tables, can be more than a full disk has free.
//!
//! ```text
//!       the disk, in the target
//!     0   1   2   3   4   5   6   7   8
//!   │ A │ B │   │   │   │   │   │ x │ y │   x and y came before their tables, and are parked near the end.
//!   │ A │ B │   │   │   │   │ x │ C │ y │   C is the cluster of 7: x was moved, and 7 zeroed, before it was written.
//!   │ A │ B │ y │   │   │   │ x │ C │ ░ │   A table maps y to 2. Its slot is free again,
//!   │ A │ B │ y │ D │   │   │ x │ C │ E │   and is zeroed before E is written.
//!   │ A │ B │ y │ D │   │   │   │ C │ E │   After the last table, x is not mapped: its slot is zeroed.
//! ```
//!
//! Three invariants hold at any time, and tests check them from outside:
//!
//! * Nothing is ever parked where data has been output. (Other threads may write the data later.)
//! * A guest range is zeroed before its data is output. (The writer may skip zeroes.)
//! * After the last table, everything still parked is not mapped: all of its slots are zeroed.
//!
//! A cluster is parked at the guest address that it has if the file is in guest order, if that is free. If the guess is
//! right, it need not move. Otherwise it is parked near the end of the disk, where data usually comes last.
//!
//! Compressed clusters begin and end anywhere, at the byte; their length is only known in sectors. So two of them may
//! share a sector, and a copy of each last sector is kept for a while, in case another cluster, of a later table,
//! begins in it.
//!
//! [`OnePassError::ParkingFull`] is returned when more is parked than fits into memory and target (an image full of old
//! snapshots on a full disk, without space behind it), and [`OnePassError::NeedsRandomAccess`] when the index exceeds
//! [`Limits::index_bytes`] and when bytes are used twice.
//!
//! A stream-optimised vmdk needs none of this: its grains contain their guest address. Its tables are only compared.
//!
//! | File | Idea |
//! |---|---|
//! | `grains` | a stream of grains that contain their guest address |
//! | `decoder` | every byte of the file is data, a table, or unknown |
//! | `tables` | root and tables |
//! | `window` | the current bytes of the file |
//! | `expected_regions` | what is known of the bytes to come |
//! | `parking` | parking, moving, claiming |
//! | `parked_index` | the index of what is parked |
//! | `free_clusters` | which clusters of the target are free |
//! | `output` | the interface to the caller |

mod decoder;
mod expected_regions;
mod free_clusters;
mod grains;
mod output;
mod parked_index;
mod parking;
mod runs;
mod tables;
mod window;

use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use output::Output;

use crate::Error;
use crate::index::Layout;
use decoder::Decoder;
use grains::Grains;

/// Decodes an image whose bytes come in order and only once.
#[derive(Debug)]
pub struct OnePass(OnePassMode);

#[derive(Debug)]
enum OnePassMode {
    Tables(Box<Decoder>),
    Grains(Box<Grains>),
}

impl OnePass {
    /// Starts at the file's first byte. The header has been parsed already, from a copy.
    ///
    /// # Errors
    /// When the header has an impossible offset of a table.
    pub fn new(layout: Arc<dyn Layout>, limits: Limits) -> Result<Self, OnePassError> {
        Ok(Self(match layout.markers() {
            Some(markers) => OnePassMode::Grains(Box::new(Grains::new(layout, markers, limits))),
            None => OnePassMode::Tables(Box::new(Decoder::new(layout, limits)?)),
        }))
    }

    /// Permits [parking](Output::store) in the addresses of `space` that lie behind the disk, too.
    #[must_use]
    pub fn with_space_behind(mut self, space: &Range<u64>) -> Self {
        match &mut self.0 {
            OnePassMode::Tables(decoder) => decoder.add_space_behind(space),
            OnePassMode::Grains(_) => {} // nothing is parked
        }
        self
    }

    /// Decodes the next bytes of the file, any number of them, to `output`.
    ///
    /// # Errors
    /// See [`OnePassError`]. Nothing may be supplied after one.
    pub fn supply(&mut self, chunk: &[u8], output: &mut dyn Output) -> Result<(), OnePassError> {
        match &mut self.0 {
            OnePassMode::Tables(decoder) => decoder.supply(chunk, output),
            OnePassMode::Grains(grains) => grains.supply(chunk, output),
        }
    }

    /// The file has ended. Outputs what is left, and zeroes whatever is still parked in the target.
    ///
    /// # Errors
    /// See [`OnePassError`]; in particular when the file ended before all of the guest's data.
    pub fn finish(self, output: &mut dyn Output) -> Result<(), OnePassError> {
        match self.0 {
            OnePassMode::Tables(decoder) => decoder.finish(output),
            OnePassMode::Grains(grains) => grains.finish(),
        }
    }
}

/// Memory limits. Nothing else grows with the image, but for a cluster, an L2 table, and a bit for each
/// cluster of the disk (2 MiB at most).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for what is known of the file: which of the bytes to come belong where, and what is parked where. A run of
    /// clusters to come takes 16, a parked one about 96.
    pub index_bytes: usize,
    /// Bytes parked in memory before the target is used for that.
    pub parked_bytes: usize,
    /// The same for an image of no more than so many bytes, where they are more: all of it can be parked in memory. The
    /// length of an image is known only at its end, so once more bytes have come `parked_bytes` counts.
    pub whole_image_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { index_bytes: 12 << 20, parked_bytes: 4 << 20, whole_image_bytes: 8 << 20 }
    }
}

/// Why one pass ended early. The target then holds neither the disk nor zeroes.
#[derive(Debug, thiserror::Error)]
pub enum OnePassError {
    /// The image is refused.
    #[error(transparent)]
    Image(#[from] Error),
    /// The output failed.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The image may be fine, but too many of its bytes precede the tables that map them.
    #[error(
        "the image cannot be read in one pass: more clusters precede their tables than memory and target can hold"
    )]
    ParkingFull,
    /// The image may be fine, but its bytes have to be read in another order than they came in.
    #[error("the image cannot be read in one pass: {because}")]
    NeedsRandomAccess {
        /// Which limit, or what about the image.
        because: String,
    },
}
