//! `cargo xtask test`: everything that shows the project works.

use anyhow::Result;

use crate::{deps, fuzz, shell};

/// Installs what is missing, then runs all tests and a short, repeatable fuzz run.
///
/// # Errors
/// Of the first part that fails.
pub fn run() -> Result<()> {
    deps::install_or_warn(deps::ALL)?;
    shell::headline("unit, property and whole-program tests");
    shell::run(&mut shell::cargo(&["test", "--workspace", "--locked"]))?;
    fuzz::smoke()
}
