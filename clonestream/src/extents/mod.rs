//! The extent stream: data and zero ranges of one disk, or of a tree of files, between our own pods.
//!
//! ```text
//!  preamble │ entry, content, entry, content, … │ end
//!            content: data (at most 1 MiB, compressed or not) and zeroes, in order, without a gap
//!
//!  preamble  "CDICLONE" version identity entry at                          sum      48 bytes
//!  frame     kind coding payload-length at length payload-sum              sum      32 bytes, then its payload
//! ```
//!
//! The checksum of a frame covers its header *and the checksum of the previous frame*, so a frame that is lost, duplicated,
//! moved or changed is detected at once. The payload's checksum covers the data before compression. Zeroes have no payload.
//! The sender chooses for each frame whether data is compressed, by LZ4 or by zstd, because only it can measure whether CPU
//! or network is scarce (`docs/decisions/0017-extents-between-our-own-pods.md`). A stream without its end, or with an entry
//! that lacks content, is rejected. Numbers are little endian, checksums are CRC-32C.
//!
//! A stream may start in the middle ([`Preamble::begin`]): the receiver has the rest.

mod entry;
mod frame;
mod packer;
mod reader;
mod writer;

pub use entry::{Entry, EntryKind};
pub use frame::{Coding, Preamble, is_extent_stream};
pub use packer::{PackedData, Packer};
pub use reader::{DataFrame, ExtentReader, Frame};
pub use writer::{ExtentWriter, WriteError};

/// Maximum bytes of data in one frame, before and after compression.
pub const DATA_MAX: usize = 1 << 20;

/// Name of a stream in errors.
const WHAT: &str = "clone stream";
