//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use std::process::Stdio;

use anyhow::{Result, bail};

use crate::{cluster, deps, shell};

/// Builds what measures. With the whole workspace, as the tests are, so that nothing is compiled twice.
const MEASURE: &[&str] =
    &["build", "--workspace", "--features", "e2e/cluster", "--locked", "--bin", "control-plane"];

/// Measures what so many DataVolumes cost the controllers, where nothing but the API server is real. The words: how many at
/// once, how many at the end, and perhaps `--dev` for a try that keeps no figures.
///
/// # Errors
/// When a build fails, or the cluster, or somebody loses patience.
pub fn control_plane(words: &[&str]) -> Result<()> {
    let (volumes, idle, is_try) = match words {
        [volumes, idle] => (volumes, idle, false),
        [volumes, idle, "--dev"] => (volumes, idle, true),
        _ => bail!("`bench control-plane` takes VOLUMES IDLE [--dev], not {}", words.join(" ")),
    };
    let program = if is_try {
        shell::run(shell::cargo(MEASURE).args(["--bin", "cdi-controller"]))?;
        "target/debug/cdi-controller"
    } else {
        let controller = &["build", "--release", "--locked", "-p", "cdi-controller"];
        shell::run(&mut shell::cargo(controller))?;
        shell::run(&mut shell::cargo(MEASURE))?;
        "target/release/cdi-controller"
    };
    let outcome = cluster::run(&["up", "--control-plane-only"]).and_then(|()| {
        let mut measure = shell::program("target/debug/control-plane", &[program, volumes, idle]);
        if !is_try {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Whatever came of it, also of a cluster that is half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

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
