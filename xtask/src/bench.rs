//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use anyhow::Result;

use crate::{deps, shell};

/// Runs the `bench` program with `args`.
///
/// # Errors
/// When a build, or the benchmark, fails.
pub fn run(args: &[&str]) -> Result<()> {
    deps::install(deps::ALL)?;
    shell::run(&mut shell::cargo(&["build", "--release", "--locked", "-p", "cli", "-p", "bench"]))?;
    let mut bench = shell::cargo(&["run", "--release", "--locked", "--quiet", "-p", "bench", "--"]);
    shell::run(bench.args(args).env("CDI_CACHE", shell::cache()?))
}
