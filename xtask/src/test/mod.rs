//! `cargo xtask test`: everything that shows that the project works. `cargo xtask soak`: more of the property tests.

mod output;
mod report;

use std::env;
use std::process::{Command, ExitStatus};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::{cluster, deps, fuzz, shell};

pub use output::{FailedTest, TestOutput};
pub use report::{FlakyTest, Report, note_skipped};

/// Where property tests take their cases from.
const SEED: &str = "PROPTEST_RNG_SEED";
/// The targets that hold property tests.
const PROPERTIES: &[&str] =
    &["--test", "blocks", "--test", "codecs", "--test", "qcow2", "--test", "parking"];
/// Informs the tests that the programs of the workspace are compiled: without it each program that a test runs is
/// compiled again, with other features of its dependencies.
pub const PROGRAMS_ARE_BUILT: &str = "CDI_PROGRAMS_ARE_BUILT";

/// Installs what is missing, then runs all tests, a short, repeatable fuzz run, and the tests of a real cluster.
///
/// Property tests take the same cases each time: a test that failed fails again, until the code changes.
///
/// # Errors
/// Of the first part that fails.
pub fn run() -> Result<()> {
    with_report(|report| {
        report.time("install third-party programs", || deps::install_or_warn(deps::ALL))?;
        let tools = if cluster::is_possible()? {
            Some(cluster::build_tools_in_background()?)
        } else {
            None
        };
        compile_workspace_tests(report)?;
        let fuzzing = match fuzz::missing() {
            None => Some(fuzz::start()?),
            Some(reason) if shell::in_ci() => bail!("cannot fuzz: {reason}"),
            Some(reason) => {
                report.skip("fuzzing", reason);
                None
            }
        };
        run_workspace_tests(report)?;
        for background in [fuzzing, tools].into_iter().flatten() {
            report.time(&format!("wait to {}", background.purpose()), || background.finish())?;
        }
        run_system_tests(report)
    })
}

/// Runs the tests of a real cluster.
///
/// # Errors
/// When one fails twice, or the cluster leaves something.
pub fn run_cluster_tests() -> Result<()> {
    with_report(run_system_tests)
}

/// Runs the tests of the operator.
///
/// # Errors
/// When one fails twice, or the cluster leaves something.
pub fn run_operator_tests() -> Result<()> {
    with_report(cluster::run_operator_tests)
}

/// Runs the tests with virtual machines of KubeVirt.
///
/// # Errors
/// When one fails twice, or the cluster leaves something.
pub fn run_kubevirt_tests() -> Result<()> {
    with_report(cluster::run_with_machines)
}

/// Runs the tests of two nodes.
///
/// # Errors
/// When one fails twice, or the cluster leaves something.
pub fn run_tests_of_two_nodes() -> Result<()> {
    with_report(cluster::run_with_two_nodes)
}

/// Fills DataVolumes for so many minutes in a cluster where everything is disturbed.
///
/// # Errors
/// When one is not filled, or the cluster leaves something.
pub fn run_disturbed(minutes: &str) -> Result<()> {
    let _: u64 = minutes.parse().with_context(|| format!("{minutes} is no number of minutes"))?;
    with_report(|report| cluster::run_disturbed(minutes, report))
}

/// The closing lines come in any case.
fn with_report(tests: impl FnOnce(&mut Report) -> Result<()>) -> Result<()> {
    let mut report = Report::new()?;
    let outcome = tests(&mut report);
    report.print();
    outcome
}

const WORKSPACE_TESTS: [&str; 3] = ["test", "--workspace", "--locked"];

fn compile_workspace_tests(report: &mut Report) -> Result<()> {
    shell::headline("unit, property and whole-program tests");
    let mut compile = shell::cargo(&WORKSPACE_TESTS);
    report.time("compile the tests", || shell::run(compile.arg("--no-run")))
}

fn run_workspace_tests(report: &mut Report) -> Result<()> {
    // Minutes to build, once. On a laptop only if CDI_REFERENCE names it (`cargo xtask cluster tools reference`).
    let upstream = if shell::in_ci() {
        Some(report.time("build upstream CDI's programs", cluster::upstream_importer)?)
    } else {
        None
    };
    let mut tests = shell::cargo(&WORKSPACE_TESTS);
    tests.envs(upstream.map(|importer| ("CDI_REFERENCE", importer)));
    tests.env(PROGRAMS_ARE_BUILT, "1");
    if env::var_os(SEED).is_none() {
        tests.env(SEED, "1");
    }
    let (status, output) = run_watched(note_skipped(&mut tests));
    report.add_workspace_tests(&output);
    let status = status?;
    if !status.success() {
        bail!("cargo {} failed: {status}", WORKSPACE_TESTS.join(" "));
    }
    Ok(())
}

/// A test program that prints no result for so long hangs. The longest suite with few results, that of
/// the operator, takes 14 minutes as a whole on two idle cores.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);

/// Runs `cargo test`: how it ended, and what it printed until then. The error of a program that hangs names its tests.
pub fn run_watched(tests: &mut Command) -> (Result<ExitStatus>, TestOutput) {
    let mut output = TestOutput::default();
    let status = shell::run_watched(tests, SILENCE_MAX, |line| output.read(line));
    let status = status.with_context(|| format!("still running in {}", output.slow()));
    (status, output)
}

fn run_system_tests(report: &mut Report) -> Result<()> {
    if !cluster::is_possible()? {
        report.skip("the tests of a real cluster", "a cluster takes root");
        return Ok(());
    }
    cluster::run_tests(report)
}

/// Runs the property tests `rounds` times, each time with new cases.
///
/// # Errors
/// Of the first round that fails; the command printed before it repeats it.
pub fn soak(rounds: &str) -> Result<()> {
    let rounds: u64 =
        rounds.parse().with_context(|| format!("{rounds} is not a number of rounds"))?;
    deps::install_or_warn(deps::ALL)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    for seed in now..now + rounds {
        shell::headline(&format!("property tests with {SEED}={seed}"));
        let mut tests = shell::cargo(&["test", "--workspace", "--locked"]);
        shell::run(tests.args(PROPERTIES).env(SEED, seed.to_string()))?;
    }
    Ok(())
}
