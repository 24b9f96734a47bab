//! The tests of the cluster: in three clusters, two of them at the same time, and once more those that failed.

use std::collections::BTreeSet;
use std::process::{Command, ExitStatus};
use std::time::Instant;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use super::traces::Traces;
use super::{CLUSTER, KUBEVIRT, TOOLS_WITH_UPSTREAM, cargo_test, install, prepare_tests, program};
use crate::background::{Background, Priority};
use crate::image::Profile;
use crate::shell;
use crate::test::{FailedTest, FlakyTest, PROGRAMS_ARE_BUILT, Report, TestOutput, run_watched};

/// Tests of the cluster itself, of `tests/e2e`. They run last, and so show that the others left nothing that disturbs a new
/// cluster.
const RIG: &[&str] = &["rig"];
/// Tests of the installed system.
const SYSTEM: &[&str] = &["control", "golden", "clones", "machines"];
/// Installs, upgrades and removes with the operator, in a cluster where nothing is installed.
const OPERATOR: &[&str] = &["operator"];
/// The additional cluster for them.
const CLUSTER_OF_OPERATOR: &str = "operator";
/// Tests with virtual machines of the whole of KubeVirt. They are no part of CI: its programs take minutes to build.
const MACHINES: &[&str] = &["kubevirt"];
/// Tests of two nodes. They are no part of CI: the tests wait until nodes are lost.
const TWO_NODES: &[&str] = &["nodes"];
/// Compares permissions with the requests that all tests before it have caused.
const PERMISSIONS: &[&str] = &["rights"];

/// Test threads mostly wait: for pods, and some until no other test uses the cluster (`run_alone` of `tests/e2e/src/test.rs`).
const THREADS: &str = "24";

/// More failures than this are no accident, and no test is repeated.
const REPEATED_MAX: usize = 5;

/// Brings a cluster up, installs this project, runs the tests, takes the cluster down and looks for what was left. The tests of the
/// operator run in another cluster at the same time: all tests mostly wait. Then the same with the tests of the cluster itself.
///
/// # Errors
/// When a test fails twice, or something is left.
pub fn run(report: &mut Report) -> Result<()> {
    prepare_tests(report, &TOOLS_WITH_UPSTREAM)?;
    // Whose traces remain is not known while there are two clusters.
    let before = Traces::read()?;
    let operator = start_operator_tests()?;
    let installed = run_installed(report);
    // Also after a failure: killed, they would leave their cluster.
    let operator = finish_operator_tests(operator, report);
    installed?;
    operator?;
    before.compare(&Traces::read()?)?;
    shell::headline("cluster, after all others: the cluster alone");
    in_cluster(|| run_programs("tests of the cluster", RIG, report))
}

fn run_installed(report: &mut Report) -> Result<()> {
    shell::headline("cluster: this project installed");
    in_cluster(|| {
        report.time("install in the cluster", || {
            install::install(Profile::Tests, install::Method::Manifests)
        })?;
        run_programs("system tests", SYSTEM, report)?;
        run_programs("permission tests", PERMISSIONS, report)
    })
}

/// Starts [`run_operator_tests`] in a cluster of its own, after [`prepare_tests`].
fn start_operator_tests() -> Result<Background> {
    let mut command = Command::new(shell::own_program()?);
    command.args(["cluster", "test", "--operator"]).env(CLUSTER, CLUSTER_OF_OPERATOR);
    command.env(PROGRAMS_ARE_BUILT, "1");
    Background::start("test the operator", Priority::Normal, &command)
}

fn finish_operator_tests(operator: Background, report: &mut Report) -> Result<()> {
    shell::headline("cluster, at the same time: the operator");
    let begin = Instant::now();
    let log = operator.finish()?;
    report.add_report_of_another("wait for the operator tests", begin.elapsed(), &log);
    Ok(())
}

/// Brings a cluster up, runs the tests of the operator in it, takes the cluster down and looks for what was left.
///
/// # Errors
/// When a test fails twice, or something is left.
pub fn run_operator_tests(report: &mut Report) -> Result<()> {
    if env::var_os(PROGRAMS_ARE_BUILT).is_none() {
        prepare_tests(report, &TOOLS_WITH_UPSTREAM)?;
    }
    shell::headline("cluster: the operator");
    in_cluster(|| {
        report.time("load the images", || install::load_images(Profile::Tests))?;
        run_programs("operator tests", OPERATOR, report)
    })
}

/// Brings a cluster up, installs this project and KubeVirt, runs the tests with virtual machines, takes the cluster down and looks
/// for what was left.
///
/// # Errors
/// When a test fails twice, or something is left.
pub fn run_with_machines(report: &mut Report) -> Result<()> {
    prepare_tests(report, &["cluster", "virtctl", KUBEVIRT])?;
    shell::headline("cluster with this project and KubeVirt");
    in_cluster(|| {
        report.time("install in the cluster", || {
            install::install(Profile::Tests, install::Method::Manifests)
        })?;
        report.time("install KubeVirt", install::install_kubevirt)?;
        run_programs("tests with virtual machines", MACHINES, report)
    })
}

/// Brings a cluster of two nodes up, installs this project, runs the tests of two nodes, takes the cluster down and looks for what
/// was left.
///
/// # Errors
/// When a test fails twice, or something is left.
pub fn run_with_two_nodes(report: &mut Report) -> Result<()> {
    prepare_tests(report, &["cluster"])?;
    shell::headline("cluster of two nodes with this project");
    in_cluster_of(&["up", "--nodes", "2"], || {
        report.time("install in the cluster", || {
            install::install(Profile::Tests, install::Method::Manifests)
        })?;
        run_programs("tests of two nodes", TWO_NODES, report)
    })
}

/// Brings a cluster up, installs this project, fills DataVolumes for so many minutes while everything is disturbed, takes the cluster
/// down and looks for what was left. The figures are kept in `bench/results`.
///
/// # Errors
/// When a DataVolume is not filled, or something is left.
pub fn run_disturbed(minutes: &str, report: &mut Report) -> Result<()> {
    prepare_tests(report, &["cluster"])?;
    shell::headline(&format!("cluster with this project, disturbed for {minutes} minutes"));
    // In a folder that git ignores: what changes in the repository during the run counts as left by it.
    let results = shell::root().join("target/soak");
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    fs::create_dir_all(&results)?;
    in_cluster(|| {
        report.time("install in the cluster", || {
            install::install(Profile::Tests, install::Method::Manifests)
        })?;
        let mut tests = cargo_test();
        tests.args(["--test", "soak", "--", "--ignored", "--nocapture"]);
        tests.env("CDI_SOAK_MINUTES", minutes);
        tests.env("CDI_SOAK_RESULTS", &results);
        report.time("disturbed DataVolumes", || shell::run(&mut tests))
    })?;
    for entry in fs::read_dir(&results)? {
        let entry = entry?;
        fs::rename(entry.path(), shell::root().join("bench/results").join(entry.file_name()))?;
    }
    Ok(())
}

fn in_cluster(tests: impl FnOnce() -> Result<()>) -> Result<()> {
    in_cluster_of(&["up"], tests)
}

fn in_cluster_of(up: &[&str], tests: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    let before = Traces::read()?;
    program(up)?;
    let outcome = tests();
    program(&["down"])?;
    outcome?;
    before.compare(&Traces::read()?)?;
    eprintln!("the cluster was needed for {} s and left nothing", begin.elapsed().as_secs());
    Ok(())
}

/// Runs test programs of `tests/e2e`, and the tests that failed once more.
fn run_programs(layer: &str, programs: &[&str], report: &mut Report) -> Result<()> {
    let begin = Instant::now();
    let (status, output) = run_tests(programs, &[]);
    report.add_tests(layer, begin.elapsed(), &output);
    let status = status?;
    if status.success() {
        return Ok(());
    }
    let failed = repeatable(&output).with_context(|| format!("{layer}: {status}"))?;
    let failed_again = repeat(&failed)?;
    for test in failed {
        if !failed_again.iter().any(|again| again.is_run_of(&test)) {
            report.add_flaky(FlakyTest::keep(test)?);
        }
    }
    if failed_again.is_empty() {
        return Ok(());
    }
    let names = failed_again.iter().map(|test| format!("{} {}", test.program, test.name));
    let names: Vec<_> = names.collect();
    bail!("failed, and once more without the others:\n  {}", names.join("\n  "))
}

/// Runs all tests of these programs, or those with these names alone.
fn run_tests(programs: &[&str], names: &[&str]) -> (Result<ExitStatus>, TestOutput) {
    let mut command = cargo_test();
    command.arg("--no-fail-fast").args(programs.iter().flat_map(|name| ["--test", name]));
    if !names.is_empty() {
        command.args(["--", "--exact"]).args(names);
    }
    run_watched(command.env("RUST_TEST_THREADS", THREADS))
}

/// The failed tests, if they explain why the command failed and are few.
fn repeatable(output: &TestOutput) -> Result<Vec<FailedTest>> {
    if let Some(program) = output.unfinished() {
        bail!("the test program {program} ended before its tests did");
    }
    let failed = output.failed();
    match failed.len() {
        0 => bail!("no test failed, but cargo did"),
        1..=REPEATED_MAX => Ok(failed),
        many => bail!("{many} tests failed: too many to repeat them"),
    }
}

/// Runs these tests once more, without the others but together, since one may take minutes. Returns those that fail again.
fn repeat(failed: &[FailedTest]) -> Result<Vec<FailedTest>> {
    let names: Vec<_> = failed.iter().map(|test| test.name.as_str()).collect();
    shell::headline(&format!("failed, now once more without the others: {}", names.join(", ")));
    let programs: BTreeSet<_> = failed.iter().map(|test| test.program.as_str()).collect();
    let programs: Vec<_> = programs.into_iter().collect();
    let (status, output) = run_tests(&programs, &names);
    let (status, failed_again) = (status?, output.failed());
    // A name that is not found would be a success without a test.
    let repeated = usize::try_from(output.passed())? + failed_again.len();
    if repeated < failed.len() || status.success() != failed_again.is_empty() {
        bail!("{repeated} of {} failed tests were repeated: {status}", failed.len());
    }
    Ok(failed_again)
}
