//! What a clone's two pods say to each other: the streams that every upload server has always taken, and a better one that
//! both sides agree on first.
//!
//! ```text
//! old:  snappy frames ( bytes of a device | GNU tar of a file system )
//! new:  preamble, frames ( entry | data, compressed and summed | zeroes ) …, end
//! ```
//!
//! Encoding is cut into pieces that threads can do on their own; decoding takes any bytes, and yields what was sent or an
//! [`Error`]. The old streams are read elsewhere: snappy's frames by the library, archives by `formats`. Nothing here opens
//! a file or a socket.

#![allow(missing_docs)] // documented is what the signature does not say

mod error;
pub mod extents;
pub mod offer;
pub mod snappy;
pub mod tar;

pub use error::Error;
