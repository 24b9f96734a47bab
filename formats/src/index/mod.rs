//! Images with an index, whatever their format: what the two methods of reading them share.
//!
//! ```text
//!  file:   header │ root │ table │ table │ data │ data │ table │ data │ …
//!                    │       └───────┬──────┘
//!  guest:            └── 0 … n bytes │ n … 2 n bytes      each table maps a range of the same length
//! ```
//!
//! A format is a [`Layout`]: it knows where its tables are and what their entries mean. A format with a single table of
//! everything (vdi, vhd, vhdx) has it cut into tables of equal coverage here, without a root.
//!
//! * **By ranges**, where any part of the file can be read: the bytes at [`Layout::root_range`] into
//!   [`Tables::parse`], then for each table that [`Tables::range`] names its bytes into [`Tables::pieces`]. Whatever is in
//!   no [`Piece`] is zero and costs nothing.
//! * **In one pass**, where the file comes once, from its beginning to its end: see [`one_pass`](crate::one_pass).
//!
//! Clusters are not decompressed here, so that the caller can do that on all cores.

mod pieces;
mod tables;

use std::fmt;
use std::ops::Range;

pub(crate) use pieces::Merged;
pub use pieces::{Piece, PieceKind};
pub use tables::Tables;
pub(crate) use tables::{root_entry_len, table_at};

use crate::Error;
use crate::cluster::Codec;
use crate::vmdk::Markers;

/// The interface of a format. A layout exists only for an image that needs no other file and whose tables are within
/// bounds.
pub trait Layout: fmt::Debug + Send + Sync {
    /// Names of its parts in messages.
    fn names(&self) -> &'static Names;

    /// Bytes of the guest's disk: a multiple of 512.
    fn virtual_size(&self) -> u64;

    /// The length of the image, where it was known when its header was read.
    fn file_len(&self) -> Option<u64>;

    /// How compressed clusters are compressed.
    fn codec(&self) -> Codec;

    /// Whether there may be any.
    fn has_compressed(&self) -> bool;

    /// Bytes that a compressed cluster decompresses to.
    fn cluster_size(&self) -> u64;

    /// Bytes from the beginning of the file that are known and hold no data.
    fn head_len(&self) -> u64;

    /// The range of the file with the offsets of the tables. Empty: the offsets are known.
    fn root_range(&self) -> Range<u64>;

    /// How many tables it takes to map the guest's disk.
    fn table_count(&self) -> u64;

    /// Guest bytes that one table maps.
    fn coverage(&self) -> u64;

    /// Bytes of the table `index`.
    fn table_len(&self, index: u64) -> u64;

    /// Where the table `index` is; `None`: all that it would map is zero. `entry` are its bytes in the root, if there is
    /// one, and were found at `at`.
    ///
    /// # Errors
    /// When the entry is impossible.
    fn table_at(&self, index: u64, entry: &[u8], at: u64) -> Result<Option<u64>, Error>;

    /// The pieces of the disk that the table `index` maps, in the order of the disk, neighbours merged; its bytes `table`
    /// were found at `at`.
    ///
    /// # Errors
    /// When `table` is too short; each item, when an entry is impossible. Nothing follows an error.
    fn pieces<'a>(
        &'a self,
        index: u64,
        at: u64,
        table: &'a [u8],
    ) -> Result<Box<dyn Iterator<Item = Result<Piece, Error>> + 'a>, Error>;

    /// Guest bytes that the table `index` marks as zero, ascending, neighbours merged: a difference to another image
    /// clears them. What lies neither here nor in a piece is unchanged. None in formats whose differences are
    /// refused, for there nothing depends on it.
    ///
    /// # Errors
    /// As for [`pieces`](Self::pieces).
    fn zeroes(&self, index: u64, at: u64, table: &[u8]) -> Result<Vec<Range<u64>>, Error> {
        let _ = (index, at, table);
        Ok(Vec::new())
    }

    /// Plain pieces are whole multiples of this, but at the disk's end.
    fn raw_alignment(&self) -> u64;

    /// Parked bytes keep their alignment within slots of this size.
    fn park_alignment(&self) -> u64;

    /// Name of the metadata from the header that lies in `range`.
    fn metadata_in(&self, range: &Range<u64>) -> Option<&'static str>;

    /// Ranges of the file that are neither data nor tables, ascending.
    fn reserved_ranges(&self) -> Vec<(Range<u64>, &'static str)>;

    /// File offsets of unused ranges according to the bytes of a reserved range, each [`park_alignment`](Self::park_alignment)
    /// bytes long.
    fn unallocated(&self, reserved: &[u8]) -> Vec<u64> {
        let _ = reserved;
        Vec::new()
    }

    /// For a file that is written to be read in order: each chunk of data contains its guest address.
    fn markers(&self) -> Option<Markers> {
        None
    }

    /// Refuses what ends behind the end of the file, if that is known.
    ///
    /// # Errors
    /// [`Error::OutsideFile`].
    fn check_within_file(&self, what: &'static str, range: &Range<u64>) -> Result<(), Error> {
        match self.file_len() {
            Some(file_len) if range.end > file_len => {
                Err(Error::OutsideFile { what, at: range.start, file_len })
            }
            _ => Ok(()),
        }
    }
}

/// Names of the parts of an image in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The table of tables.
    pub root: &'static str,
    /// A table.
    pub table: &'static str,
    /// Name of a second table at the offset of a first.
    pub other_table: &'static str,
    /// Data.
    pub cluster: &'static str,
    /// Compressed data.
    pub compressed: &'static str,
}
