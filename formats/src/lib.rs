//! Decoders of compressed streams and disk images, over bytes handed in. No sockets, paths, clocks or environment.

mod error;

pub use error::Error;
