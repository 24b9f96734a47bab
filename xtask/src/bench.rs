//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use std::process::Stdio;

use anyhow::Result;

use crate::{cluster, deps, shell};

/// Measures what so many DataVolumes cost the controllers, where nothing but the API server is real.
///
/// # Errors
/// When a build fails, or the cluster, or somebody loses patience.
pub fn control_plane(volumes: &str, idle: &str) -> Result<()> {
    let controller = &["build", "--release", "--locked", "-p", "cdi-controller"];
    shell::run(&mut shell::cargo(controller))?;
    cluster::run(&["up", "--control-plane-only"])?;
    let words = ["run", "--quiet", "--locked", "-p", "e2e", "--features", "cluster", "--"];
    let mut measure = shell::cargo(&words);
    let outcome = shell::run(measure.args(["target/release/cdi-controller", volumes, idle]));
    cluster::run(&["down"])?;
    outcome
}

/// Runs the `bench` program with `args`, against the reference's programs that `tests/tools` pins.
///
/// # Errors
/// When a build, or the benchmark, fails.
pub fn run(args: &[&str]) -> Result<()> {
    deps::install(deps::ALL)?;
    let packages = ["cli", "uploadserver", "uploadproxy", "cloner", "bench"];
    let mut build = shell::cargo(&["build", "--release", "--locked"]);
    shell::run(build.args(packages.iter().flat_map(|package| ["-p", package])))?;
    let mut tools = shell::cargo(&["run", "--quiet", "--locked", "-p", "cluster", "--"]);
    let reference = shell::output(tools.args(["tools", "reference"]).stderr(Stdio::inherit()))?;
    let mut bench = shell::cargo(&["run", "--release", "--locked", "--quiet", "-p", "bench", "--"]);
    shell::run(
        bench.args(args).env("CDI_CACHE", shell::cache()?).env("CDI_REFERENCE", reference.trim()),
    )
}
