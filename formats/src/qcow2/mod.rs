//! qcow2, versions 2 and 3, in all variants that `qemu-img` writes and that stand alone in one file.
//!
//! ```text
//!  file:   header │ … │ L1 table │ … │ L2 table │ data │ data │ L2 table │ compressed data │ …
//!                        │  └────────────┬─────────────────────┘
//!  guest:                └── 0 … 512 MiB │ 512 MiB … 1 GiB      an L2 table maps cluster size² / 8 bytes
//! ```
//!
//! Two readers share the header and the tables. Both show the active state of the disk; internal snapshots are not
//! looked at, and reference counts only to know what is no data.
//!
//! * **By ranges**, where any part of the file can be asked for: [`Header::parse`], then the bytes at
//!   [`Header::l1_range`] into [`L1::parse`], then for each table that [`L1::l2_offset`] names its bytes into
//!   [`L1::pieces`]. Whatever is in no [`Piece`] is zero and costs nothing.
//! * **In one pass**, where the file comes once, from its beginning to its end: [`Header::parse`] on a copy of the first
//!   bytes, then everything into [`OnePass::supply`], which tells an [`Output`] what it is.
//!
//! Clusters are not decompressed here, so that the caller can do that on all cores.
//!
//! # What is refused
//!
//! Every image that names another file, is encrypted, marked as corrupt, or needs unknown features; and tables that
//! cannot be: unaligned, overlapping, outside the file, too long, with reserved bits set. Each has its own
//! [`Error`](crate::Error).
//!
//! # Where a file may end
//!
//! QEMU takes bytes behind the end of a file for zeroes, so that it reads an image whose end is missing as if all was
//! well. Here an image is cut short, hence refused, if it lacks a table or a byte that the guest can see. All that its
//! writers ever leave out are the subclusters of the last cluster that hold no data, and the rest of the sector in which
//! the last compressed cluster ends. Both are read.

mod extensions;
mod header;
mod l1;
mod one_pass;
mod pieces;
mod table;
mod zeroes;

pub use header::{ClusterCompression, Header};
pub use l1::L1;
pub use one_pass::{Limits, OnePass, OnePassError, Output};
pub use pieces::{Piece, PieceKind};
