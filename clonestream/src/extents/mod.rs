//! The stream of a clone between two pods that both know it: what holds data, and what is zero, of one disk or of a tree
//! of files.
//!
//! ```text
//!  preamble │ entry, content, entry, content, … │ end
//!            content: data (at most 1 MiB, compressed or not) and zeroes, in order, without a gap
//!
//!  preamble  "CDICLONE" version identity entry at                          sum      48 bytes
//!  frame     kind coding payload-length at length payload-sum              sum      32 bytes, then its payload
//! ```
//!
//! Each frame's sum is of its header *and the sum of the frame before*, so that a frame that is lost, doubled, moved or
//! changed shows at once; the payload's is of the data before compression, for whoever decompresses it. Zeroes have no
//! payload. What is compressed is by LZ4: pods are short of processor before they are short of network, and half of what
//! zstd saves for a quarter of its work is the better bargain (`docs/decisions/0017-extents-between-our-own-pods.md`).
//! A stream without its end, and an entry without all of its content, is no stream. Numbers are little endian,
//! sums are CRC-32C.
//!
//! A stream may begin in the middle ([`Preamble::begin`]): the receiver has the rest.

mod entry;
mod frame;
mod reader;
mod writer;

pub use entry::{Entry, EntryKind};
pub use frame::{Preamble, is_extents};
pub use reader::{Data, Frame, Reader};
pub use writer::{Packer, Piece, WriteError, Writer};

/// The most bytes of data in one frame, before and after compression.
pub const DATA_MAX: usize = 1 << 20;

/// As messages call a stream.
const WHAT: &str = "clone stream";
