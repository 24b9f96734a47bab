//! An image read once, from its first byte to its last.
//!
//! The tables say where a cluster belongs. While they come before the clusters, as `qemu-img convert` writes them, the
//! decoder looks up each cluster and hands it on, uncopied:
//!
//! ```text
//!            what is known of the bytes to come: the agenda, in the order in which they come
//!            ┌──────────────────────────────────────────────────────────────────────────┐
//!   file ──► │ header │ L1 │ L2 │ data for 0 │ data for 3 │ L2 │ compressed, for 9 │ …  │
//!            └──────────┬────┬───────┬────────────┬─────────┬──────────┬────────────────┘
//!                       └────┴── learn ── hand on ┴── learn ┴─ hand on ┘
//! ```
//!
//! (`L1` is qcow2's name for the root of [`index`](crate::index), `L2` for a table.)
//!
//! But clusters may come before their tables: all of them, if the L1 table lies at the end (a disk that has grown) or the
//! L2 tables do (`preallocation=full`); many, after a snapshot; a few at each border between two L2 tables, if they are
//! compressed. Nobody knows yet where they belong, or whether they are anything at all. They are *parked*:
//!
//! 1. Zeroes take no room: only the index remembers them.
//! 2. Then memory, up to [`Limits::parked_bytes`].
//! 3. Then the target. A disk has as much room as the guest can address, and what has not received its own data yet is
//!    free. No image has more clusters in use than that.
//!
//! ```text
//!       the disk, in the target
//!     0   1   2   3   4   5   6   7   8
//!   │ A │ B │   │   │   │   │   │ x │ y │   x and y came before their tables, and are parked near the end.
//!   │ A │ B │   │   │   │   │ x │ C │ y │   C came, which belongs at 7: x has moved, and 7 was made zero first.
//!   │ A │ B │ y │   │   │   │ x │ C │ ░ │   A table says that y belongs at 2. What it left behind is free again,
//!   │ A │ B │ y │ D │   │   │ x │ C │ E │   and is made zero before E comes.
//!   │ A │ B │ y │ D │   │   │   │ C │ E │   That was the last table: x is nobody's, and its room is made zero.
//! ```
//!
//! So three rules hold at any time, and tests watch them from outside:
//!
//! * Nothing is ever parked where data has been handed over. (Data may be written late, by other threads.)
//! * Before data is handed over, its place has been made zero. (Who writes it may leave its zeroes out.)
//! * When the last table has been read, everything still parked is nobody's: all of its room is made zero.
//!
//! A cluster is parked where it would belong if the data went on as it began, when that place is free. If that was right,
//! it need not move at all. Otherwise it goes near the end of the disk, where data usually comes last.
//!
//! Compressed clusters begin and end anywhere, at the byte; their length is only known in sectors. So two of them may
//! share a sector, and a copy of each last sector is kept for a while, in case a table says later that another cluster
//! begins in it.
//!
//! What cannot be had this way is said with [`OnePassError::NeedsRandomAccess`]: more parked than memory and target have
//! room for (an image full of old snapshots on a full disk), more runs to remember than [`Limits::index_bytes`] allows,
//! and bytes that are used twice.
//!
//! A stream-optimised vmdk needs none of this: its grains say where they belong. Its tables are only held against that.
//!
//! | File | Idea |
//! |---|---|
//! | `grains` | a stream of grains that say where they belong |
//! | `decoder` | every byte of the file is data, a table, or unknown |
//! | `tables` | what it learns from tables |
//! | `window` | the bytes of the file at hand |
//! | `agenda` | what is known of the bytes to come |
//! | `parking` | parking, moving, taking out |
//! | `fragments` | the index of what is parked |
//! | `room` | which clusters of the target are free |
//! | `output` | what the caller has to do |

mod agenda;
mod decoder;
mod fragments;
mod grains;
mod output;
mod parking;
mod room;
mod runs;
mod tables;
mod window;

use std::io;
use std::sync::Arc;

pub use output::Output;

use crate::Error;
use crate::index::Layout;
use decoder::Decoder;
use grains::Grains;

/// Decodes an image whose bytes come in order and only once.
#[derive(Debug)]
pub struct OnePass(Way);

#[derive(Debug)]
enum Way {
    Tables(Box<Decoder>),
    Grains(Box<Grains>),
}

impl OnePass {
    /// Begins at the file's first byte. The header has been parsed from a copy of it.
    ///
    /// # Errors
    /// When a table cannot be where the header says.
    pub fn new(layout: Arc<dyn Layout>, limits: Limits) -> Result<Self, OnePassError> {
        Ok(Self(match layout.markers() {
            Some(markers) => Way::Grains(Box::new(Grains::new(layout, markers, limits))),
            None => Way::Tables(Box::new(Decoder::new(layout, limits)?)),
        }))
    }

    /// Takes the next bytes of the file, any number of them, and hands over to `output` what they mean.
    ///
    /// # Errors
    /// See [`OnePassError`]. Nothing may be supplied after one.
    pub fn supply(&mut self, chunk: &[u8], output: &mut dyn Output) -> Result<(), OnePassError> {
        match &mut self.0 {
            Way::Tables(decoder) => decoder.supply(chunk, output),
            Way::Grains(grains) => grains.supply(chunk, output),
        }
    }

    /// The file has ended. Hands over what is left, and makes zero again whatever is still parked in the target.
    ///
    /// # Errors
    /// See [`OnePassError`]; in particular when the file ended before all of the guest's data had come.
    pub fn finish(self, output: &mut dyn Output) -> Result<(), OnePassError> {
        match self.0 {
            Way::Tables(decoder) => decoder.finish(output),
            Way::Grains(grains) => grains.finish(),
        }
    }
}

/// How much may be remembered. Nothing else grows with the image, but for a cluster, an L2 table, and a bit for each
/// cluster of the disk (2 MiB at most).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes for what is known of the file: which of the bytes to come belong where, and what is parked where. A run of
    /// clusters to come takes 16, a parked one about 96.
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
