//! Decoders of compressed streams and disk images, over bytes handed in. No sockets, paths, clocks or environment.

mod bytes;
mod error;
pub mod qcow2;

pub use error::Error;
