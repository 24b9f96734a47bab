//! `cargo xtask bench`: builds program and benchmark as they are released, then runs the benchmark.

use anyhow::{Result, bail};

use crate::image::{self, Profile};
use crate::{cluster, deps, shell};

/// The program that measures the control plane.
const MEASURING: &str = "control-plane";

/// How many blank DataVolumes at once, by default.
const BLANK: &str = "60";
/// How often each side is measured, for results that are kept, and for a try.
const RUNS: &str = "5";
const RUNS_OF_A_TRY: &str = "1";

/// Measures what DataVolumes cost the controllers, where nothing but the API server is real. The arguments: how many at once and
/// how many at the end, or `clones` and how many; and `--dev` for a try that keeps no results. `blank` and how many, `single`, or `idle`
/// compares with upstream CDI, in a whole cluster.
///
/// # Errors
/// When a build fails, or the cluster, or the measurement does not end in time.
pub fn control_plane(arguments: &[&str]) -> Result<()> {
    let (what, number, is_try) = match arguments {
        ["blank"] => return in_whole_cluster(&["blank", BLANK], false),
        ["blank", "--dev"] => return in_whole_cluster(&["blank", BLANK], true),
        ["blank", number] => return in_whole_cluster(&["blank", number], false),
        ["blank", number, "--dev"] => return in_whole_cluster(&["blank", number], true),
        ["single"] => return in_whole_cluster(&["single"], false),
        ["single", "--dev"] => return in_whole_cluster(&["single"], true),
        ["idle"] => return at_rest(false),
        ["idle", "--dev"] => return at_rest(true),
        [what, number] => (*what, *number, false),
        [what, number, "--dev"] => (*what, *number, true),
        _ => bail!(
            "`bench control-plane` takes VOLUMES IDLE, clones CLONES, blank VOLUMES, single or idle, and --dev, not {}",
            arguments.join(" ")
        ),
    };
    deps::install(deps::CLUSTER)?;
    let program = if is_try {
        shell::run(&mut cluster::cargo_build(&[MEASURING, "cdi-controller"]))?;
        "target/debug/cdi-controller"
    } else {
        let controller = &["build", "--release", "--locked", "-p", "cdi-controller"];
        shell::run(&mut shell::cargo(controller))?;
        shell::run(&mut cluster::cargo_build(&[MEASURING]))?;
        "target/release/cdi-controller"
    };
    let outcome = cluster::run(&["up", "--control-plane-only"]).and_then(|()| {
        let mut measure = shell::program("target/debug/control-plane", &[program, what, number]);
        if !is_try {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Also after a failure, and when the cluster is only half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

/// Measures how long DataVolumes take, by our controllers and by upstream CDI's alternately, in the cluster of the tests: `blank` and
/// how many at once, or `single`.
fn in_whole_cluster(what: &[&str], is_try: bool) -> Result<()> {
    let (_, install, runs) = profile(is_try);
    measure(&[what, &[runs]].concat(), is_try, |_| cluster::run(install))
}

/// Measures the memory of upstream CDI's installation and of ours, in a cluster where nothing is installed before.
fn at_rest(is_try: bool) -> Result<()> {
    measure(&["idle"], is_try, cluster::load_images)
}

/// Runs the program that measures with `words`, in a new cluster after `prepare`.
fn measure(
    words: &[&str],
    is_try: bool,
    prepare: impl FnOnce(Profile) -> Result<()>,
) -> Result<()> {
    deps::install(&deps::everything())?;
    let (profile, ..) = profile(is_try);
    if is_try {
        shell::run(&mut cluster::cargo_build_all())?;
    } else {
        shell::run(&mut cluster::cargo_build(&[MEASURING]))?;
    }
    // Before the cluster is up, which would take processor time from the compiler.
    image::build(&image::names(), profile)?;
    cluster::upstream_importer()?;
    cluster::virtctl()?;
    let outcome = cluster::run(&["up"]).and_then(|()| {
        prepare(profile)?;
        let mut measure = shell::program("target/debug/control-plane", words);
        if !is_try {
            measure.arg("bench/results");
        }
        shell::run(&mut measure)
    });
    // Also after a failure, and when the cluster is only half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

/// How the programs are compiled, the command that installs them, and how often each side is measured.
fn profile(is_try: bool) -> (Profile, &'static [&'static str], &'static str) {
    if is_try {
        (Profile::Tests, &["install", "--tests", "--manifests"], RUNS_OF_A_TRY)
    } else {
        (Profile::Release, &["install", "--manifests"], RUNS)
    }
}

/// How long the hostile tenants attack, by default.
const MINUTES: &str = "10";

/// Lets hostile tenants attack, in the cluster of the tests. The arguments: how many minutes, and `--dev` for a try with what the
/// tests have compiled, which keeps no results.
///
/// # Errors
/// When a build fails, or the cluster, or a check.
pub fn hostile(arguments: &[&str]) -> Result<()> {
    let (minutes, is_try) = match arguments {
        [] => (MINUTES, false),
        ["--dev"] => (MINUTES, true),
        [minutes] => (*minutes, false),
        [minutes, "--dev"] => (*minutes, true),
        _ => bail!("`bench hostile` takes MINUTES and --dev, not {}", arguments.join(" ")),
    };
    deps::install(deps::ALL)?;
    let (profile, install, _) = profile(is_try);
    shell::run(&mut cluster::cargo_build_all())?;
    // Before the cluster is up, which would take processor time from the compiler.
    image::build(&image::names(), profile)?;
    let outcome = cluster::run(&["up"]).and_then(|()| {
        cluster::run(install)?;
        let mut tests = cluster::cargo_test();
        tests.args(["--test", "hostile", "--", "--ignored", "--nocapture"]);
        tests.env("CDI_HOSTILE_MINUTES", minutes);
        if !is_try {
            tests.env("CDI_HOSTILE_RESULTS", shell::root().join("bench/results"));
        }
        shell::run(&mut tests)
    });
    // Also after a failure, and when the cluster is only half up.
    let down = cluster::run(&["down"]);
    outcome.and(down)
}

/// Runs the `bench` program with `args`, against upstream CDI's programs at the version that `tests/tools` pins.
///
/// # Errors
/// When a build, or the benchmark, fails.
pub fn run(args: &[&str]) -> Result<()> {
    deps::install(deps::ALL)?;
    let packages = ["cli", "importer", "uploadserver", "uploadproxy", "cloner", "bench"];
    let mut build = shell::cargo(&["build", "--release", "--locked"]);
    shell::run(build.args(packages.iter().flat_map(|package| ["-p", package])))?;
    let upstream = cluster::upstream_importer()?;
    let mut bench = shell::cargo(&["run", "--release", "--locked", "--quiet", "-p", "bench", "--"]);
    shell::run(bench.args(args).env("CDI_CACHE", shell::cache()?).env("CDI_REFERENCE", upstream))
}
