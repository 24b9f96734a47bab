//! Drives the real programs as users and controllers do: by arguments, exit code, output and the target's content
//! afterwards. What is asserted with it stands in `it/`.

pub mod container;
mod images;
mod import;
mod pod;
pub mod registry;
mod target;

pub use images::{Wire, wires};
pub use import::{Import, LIMIT, report, state};
pub use pod::Pod;
pub use target::{Kind, Target};

/// An error with its causes, on one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
