//! Decoders of compressed streams and disk images, over bytes handed in. No sockets, paths, clocks or environment.

mod bytes;
pub mod cluster;
pub mod decompress;
mod error;
mod gzip;
mod inflate;
pub mod qcow2;
pub mod sniff;
pub mod tar;
pub mod units;
mod xz;
mod zstd;

pub use error::Error;
