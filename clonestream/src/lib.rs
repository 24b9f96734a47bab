//! The streams between the two pods of a clone: snappy frames, which upstream CDI's upload servers accept, and the extent
//! stream, which our cloner and upload server agree on first.
//!
//! ```text
//! snappy:  frames ( bytes of a device | GNU tar of a file system )
//! extent:  preamble, frames ( entry | data, compressed, with checksum | zeroes ) …, end
//! ```
//!
//! Encoding is split so that threads can do it independently; decoding accepts any bytes and yields what was sent or an
//! [`Error`]. The snappy streams are decoded elsewhere: frames by the `snap` crate, archives by `formats`. This crate opens
//! no file and no socket.

mod error;
pub mod extents;
pub mod offer;
pub mod snappy;
pub mod tar;

pub use error::Error;
