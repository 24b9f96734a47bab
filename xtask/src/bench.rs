//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use std::process::Stdio;

use anyhow::Result;

use crate::{deps, shell};

/// Runs the `bench` program with `args`, against the reference importer that `tests/tools` pins.
///
/// # Errors
/// When a build, or the benchmark, fails.
pub fn run(args: &[&str]) -> Result<()> {
    deps::install(deps::ALL)?;
    shell::run(&mut shell::cargo(&["build", "--release", "--locked", "-p", "cli", "-p", "bench"]))?;
    let mut tools = shell::cargo(&["run", "--quiet", "--locked", "-p", "cluster", "--"]);
    let reference = shell::output(tools.args(["tools", "reference"]).stderr(Stdio::inherit()))?;
    let mut bench = shell::cargo(&["run", "--release", "--locked", "--quiet", "-p", "bench", "--"]);
    shell::run(
        bench.args(args).env("CDI_CACHE", shell::cache()?).env("CDI_REFERENCE", reference.trim()),
    )
}
