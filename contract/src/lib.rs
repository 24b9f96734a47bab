//! What a controller and its workers agree on: the order for an import and the answer to it, quantities of bytes,
//! checksums, and the arithmetic of volume sizes.
//!
//! Pure values and functions. Nothing here reads a file, a clock, a socket or the environment.

mod byte_count;
mod checksum;
mod fit;
mod hasher;
pub mod job;
mod overhead;
mod quantity;
mod small_volume;

pub use byte_count::{ByteCount, Human};
pub use checksum::{Algorithm, BadChecksum, Checksum};
pub use fit::{Fit, Volume};
pub use hasher::Hasher;
pub use job::ImportJob;
pub use overhead::{BadOverhead, Overhead};
pub use quantity::{BadQuantity, Quantity};
