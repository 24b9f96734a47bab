//! `cargo xtask cluster`: the program of `tests/cluster`, after what it needs is installed.

use anyhow::Result;

use crate::{deps, shell};

/// Hands the words on. `up` installs the distribution's part first.
///
/// # Errors
/// When the program fails.
pub fn run(words: &[&str]) -> Result<()> {
    if words.first() == Some(&"up") {
        deps::install(deps::CLUSTER)?;
    }
    let mut command = shell::cargo(&["run", "--quiet", "--locked", "--package", "cluster", "--"]);
    shell::run(command.args(words))
}
