//! qcow2, versions 2 and 3, in all variants that `qemu-img` writes and that stand alone in one file.
//!
//! ```text
//!  file:   header │ … │ L1 table │ … │ L2 table │ data │ data │ L2 table │ compressed data │ …
//!                        │  └────────────┬─────────────────────┘
//!  guest:                └── 0 … 512 MiB │ 512 MiB … 1 GiB      an L2 table maps cluster size² / 8 bytes
//! ```
//!
//! [`Header::parse`] reads the header; how the rest is read, by ranges or in one pass, is the business of
//! [`index`](crate::index). Both ways show the active state of the disk; internal snapshots are not examined, and
//! reference counts only to know what is no data.
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
mod layout;
mod pieces;
mod table;
mod zeroes;

pub use header::Header;
