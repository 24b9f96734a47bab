//! Decoders of compressed streams and disk images, over bytes passed in. No sockets, paths, clocks or environment.

#![warn(missing_docs)]

mod blocks;
mod bytes;
mod bzip2;
pub mod cluster;
pub mod decompress;
mod error;
mod frames;
mod gzip;
pub mod image;
pub mod index;
mod inflate;
mod lz4;
pub mod one_pass;
pub mod qcow2;
pub mod sniff;
pub mod speculation;
pub mod tar;
pub mod units;
mod vdi;
pub mod vhd;
mod vhdx;
pub mod vmdk;
mod xz;
mod zstd;

pub use error::Error;
