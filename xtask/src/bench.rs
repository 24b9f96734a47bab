//! `cargo xtask bench`: builds program and benchmark as they are shipped, then hands over.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::image::{self, Profile};
use crate::{cluster, deps, shell};

/// Builds what measures. With the whole workspace, as the tests are, so that nothing is compiled twice.
const MEASURE: &[&str] =
    &["build", "--workspace", "--features", "e2e/cluster", "--locked", "--bin", "control-plane"];

/// How many blank DataVolumes at once, unless told otherwise.
const BLANK: &str = "60";
/// How often by each, for figures that are kept, and for a try.
const RUNS: &str = "5";
const RUNS_OF_A_TRY: &str = "1";

/// Measures what so many DataVolumes cost the controllers, where nothing but the API server is real. The words: how many at
/// once and how many at the end, or `clones` and how many; and perhaps `--dev` for a try that keeps no figures. `blank` and how
/// many compares with the reference's controllers, in a whole cluster.
///
/// # Errors
/// When a build fails, or the cluster, or somebody loses patience.
pub fn control_plane(words: &[&str]) -> Result<()> {
    let (what, number, is_try) = match words {
        ["blank"] => return blank(BLANK, false),
        ["blank", "--dev"] => return blank(BLANK, true),
        ["blank", number] => return blank(number, false),
        ["blank", number, "--dev"] => return blank(number, true),
        [what, number] => (*what, *number, false),
        [what, number, "--dev"] => (*what, *number, true),
        _ => bail!(
            "`bench control-plane` takes VOLUMES IDLE, clones CLONES or blank VOLUMES, and --dev, not {}",
            words.join(" ")
        ),
    };
    deps::install(deps::CLUSTER)?;
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
        if !is_try {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Whatever came of it, also of a cluster that is half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

/// So many blank DataVolumes at once, by our controllers and by the reference's in turns, in the cluster of the tests.
fn blank(number: &str, is_try: bool) -> Result<()> {
    deps::install(&deps::everything())?;
    let (profile, flag, runs) = match is_try {
        true => (Profile::Tests, "--tests", RUNS_OF_A_TRY),
        false => (Profile::Release, "", RUNS),
    };
    if is_try {
        shell::run(&mut shell::cargo(cluster::BUILD))?;
    } else {
        shell::run(&mut shell::cargo(MEASURE))?;
    }
    // Before there is a cluster that would be in the way.
    for name in image::names() {
        image::build(name, profile)?;
    }
    let reference = cluster::reference()?;
    let folder = Path::new(&reference).parent().context("a program lies in a folder")?;
    let outcome = cluster::run(&["up"]).and_then(|()| {
        let install = ["install", flag];
        cluster::run(if flag.is_empty() { &install[..1] } else { &install[..] })?;
        let mut measure = shell::program("target/debug/control-plane", &["blank", number, runs]);
        measure.arg(folder);
        if !is_try {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Whatever came of it, also of a cluster that is half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

/// How long the hostile tenants attack, unless told otherwise.
const MINUTES: &str = "10";

/// Hostile tenants for so many minutes, in the cluster of the tests. The words: how many minutes, and perhaps `--dev` for a
/// try with what the tests have compiled, which keeps no figures.
///
/// # Errors
/// When a build fails, or the cluster, or anything that is checked.
pub fn hostile(words: &[&str]) -> Result<()> {
    let (minutes, is_try) = match words {
        [] => (MINUTES, false),
        ["--dev"] => (MINUTES, true),
        [minutes] => (*minutes, false),
        [minutes, "--dev"] => (*minutes, true),
        _ => bail!("`bench hostile` takes MINUTES and --dev, not {}", words.join(" ")),
    };
    deps::install(deps::ALL)?;
    let (profile, install): (_, &[&str]) = match is_try {
        true => (Profile::Tests, &["install", "--tests"]),
        false => (Profile::Release, &["install"]),
    };
    shell::run(&mut shell::cargo(cluster::BUILD))?;
    // Before there is a cluster that would be in the way.
    for name in image::names() {
        image::build(name, profile)?;
    }
    let outcome = cluster::run(&["up"]).and_then(|()| {
        cluster::run(install)?;
        let mut tests = shell::cargo(cluster::TESTS);
        tests.args(["--test", "hostile", "--", "--ignored", "--nocapture"]);
        tests.env("CDI_HOSTILE_MINUTES", minutes);
        if !is_try {
            tests.env("CDI_HOSTILE_RESULTS", shell::root().join("bench/results"));
        }
        shell::run(&mut tests)
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
