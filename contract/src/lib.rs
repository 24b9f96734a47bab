//! What a controller and its worker pods agree on: the jobs of importer, upload server and cloner as environment variables,
//! the termination message with the outcome, quantities of bytes, checksums, and the arithmetic of volume sizes.
//!
//! Pure values and functions. Nothing here reads a file, a clock, a socket or the environment.

#![warn(missing_docs)]

mod byte_count;
mod checksum;
pub mod clone;
mod fit;
mod go_bool;
mod hasher;
pub mod import;
mod overhead;
pub mod paths;
mod quantity;
mod small_volume;
pub mod termination;
pub mod upload;

pub use byte_count::{ByteCount, Human};
pub use checksum::{Algorithm, BadChecksum, Checksum};
pub use clone::CloneJob;
pub use fit::{Fit, Volume};
pub use go_bool::go_bool;
pub use hasher::Hasher;
pub use import::ImportJob;
pub use overhead::{BadOverhead, Overhead};
pub use quantity::{BadQuantity, Quantity};
pub use upload::UploadJob;
