//! qcow2, versions 2 and 3, in all variants that `qemu-img` writes and that stand alone in one file.

mod extensions;
mod header;
mod l1;
mod one_pass;
mod pieces;
mod table;

pub use header::{ClusterCompression, Header};
pub use l1::L1;
pub use one_pass::{Limits, OnePass, OnePassError, Output};
pub use pieces::{Piece, PieceKind};
