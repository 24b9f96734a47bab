//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use anyhow::{Result, bail};

use crate::{cluster, deps, shell};

/// Builds what measures. With the whole workspace, as the tests are, so that nothing is compiled twice.
const MEASURE: &[&str] =
    &["build", "--workspace", "--features", "e2e/cluster", "--locked", "--bin", "control-plane"];

/// Measures what so many DataVolumes cost the controllers, where nothing but the API server is real. The words: how many at
/// once and how many at the end, or `clones` and how many; and perhaps `--dev` for a try that keeps no figures.
///
/// # Errors
/// When a build fails, or the cluster, or somebody loses patience.
pub fn control_plane(words: &[&str]) -> Result<()> {
    let (what, number, is_try) = match words {
        [what, number] => (*what, *number, false),
        [what, number, "--dev"] => (*what, *number, true),
        _ => bail!(
            "`bench control-plane` takes VOLUMES IDLE or clones CLONES, and --dev, not {}",
            words.join(" ")
        ),
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
        let mut measure = shell::program("target/debug/control-plane", &[program, what, number]);
        if !is_try && what != "clones" {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Whatever came of it, also of a cluster that is half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
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
    let reference = cluster::reference()?;
    let mut bench = shell::cargo(&["run", "--release", "--locked", "--quiet", "-p", "bench", "--"]);
    shell::run(bench.args(args).env("CDI_CACHE", shell::cache()?).env("CDI_REFERENCE", reference))
}
