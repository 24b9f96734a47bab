//! `cargo xtask cluster`: the program of `tests/cluster`, after what it needs is installed; this project installed in it; and
//! the tests that need it.

mod install;
mod suite;
mod traces;

use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::background::{Background, Priority};
use crate::test::{PROGRAMS_ARE_BUILT, Report, note_skipped};
use crate::{deps, shell};

pub use install::load_images;
pub use suite::{
    run as run_tests, run_disturbed, run_operator_tests, run_with_machines, run_with_two_nodes,
};

/// Selects an additional cluster, by its name.
const CLUSTER: &str = "CDI_CLUSTER";

/// What the tests of virtual machines take of KubeVirt: the whole of it, or its launcher alone.
const KUBEVIRT: &str = "kubevirt-all";
const LAUNCHER: &str = "kubevirt";

/// The groups of third-party programs that `tests/cluster` builds for the tests of CI, in this order.
const TOOLS_OF_TESTS: [&str; 3] = ["cluster", "virtctl", LAUNCHER];
/// With upstream CDI's programs, which the tests of the operator install and take over.
const TOOLS_WITH_UPSTREAM: [&str; 4] = ["cluster", "virtctl", LAUNCHER, "reference"];

/// The whole workspace with the features of the tests, so that no dependency is compiled again with other features.
pub const WORKSPACE: &[&str] = &["--workspace", "--features", "e2e/cluster", "--locked"];
/// Some test without which a build of programs alone would leave out the features that tests add to dependencies, and so
/// compile all of them again. This one depends on little and seldom changes.
const WITH_FEATURES_OF_TESTS: &[&str] = &["--test", "crds"];

/// `cargo test` for tests of the cluster, after [`cargo_build_all`]; `--test NAME` and the like follow.
pub fn cargo_test() -> Command {
    let mut command = shell::cargo(&["test"]);
    command.args(WORKSPACE).env(PROGRAMS_ARE_BUILT, "1");
    note_skipped(&mut command);
    command
}

/// `cargo build` for all programs and tests.
pub fn cargo_build_all() -> Command {
    let mut command = shell::cargo(&["build"]);
    command.args(WORKSPACE).args(["--bins", "--tests"]);
    command
}

/// `cargo build` for these programs alone, as [`cargo_build_all`] builds them.
pub fn cargo_build(programs: &[&str]) -> Command {
    let mut command = shell::cargo(&["build"]);
    command.args(WORKSPACE).args(WITH_FEATURES_OF_TESTS);
    command.args(programs.iter().flat_map(|program| ["--bin", program]));
    command
}

/// Runs a cluster command: `install`, `update`, `test` and `soak` here, all others by the program of `tests/cluster`, which takes a
/// compiler, and for `up` what a cluster takes from the distribution. Each command installs that first.
///
/// # Errors
/// When the program fails.
pub fn run(arguments: &[&str]) -> Result<()> {
    if matches!(arguments, ["test" | "soak" | "install" | "update", ..]) && is_outside_its_network()
    {
        return run_in_its_network(arguments);
    }
    match arguments {
        ["test"] => return crate::test::run_cluster_tests(),
        ["test", "--operator"] => return crate::test::run_operator_tests(),
        ["test", "--kubevirt"] => return crate::test::run_kubevirt_tests(),
        ["test", "--nodes", "2"] => return crate::test::run_tests_of_two_nodes(),
        ["soak", minutes] => return crate::test::run_disturbed(minutes),
        ["install", options @ ..] => return install::run(options),
        ["update", names @ ..] if !names.is_empty() => return install::update(names),
        ["update"] => {
            bail!("`cluster update` takes the names of images or packages: cdi-controller")
        }
        ["up", ..] => deps::install(deps::CLUSTER)?,
        _ => deps::install(deps::BUILD)?,
    }
    program(arguments)
}

/// The name of the additional cluster that `CDI_CLUSTER` selects.
pub fn additional() -> Option<OsString> {
    std::env::var_os(CLUSTER).filter(|name| !name.is_empty())
}

/// Whether `CDI_CLUSTER` names an additional cluster, whose network this process does not see.
fn is_outside_its_network() -> bool {
    additional().is_some_and(|cluster| std::env::var_os("CDI_CLUSTER_ENTERED") != Some(cluster))
}

/// Installs and fetches what takes a registry, and runs the command again in that network, which leads to none.
fn run_in_its_network(arguments: &[&str]) -> Result<()> {
    deps::install_or_warn(deps::CLUSTER)?;
    shell::run(&mut shell::cargo(&["fetch", "--locked"]))?;
    let tools = tools_taken_by(arguments);
    if !tools.is_empty() {
        program(&[&["tools"], tools].concat())?;
    }
    let us = shell::own_program()?;
    let us = us.to_string_lossy();
    program(&[&["run", &us, "cluster"], arguments].concat())
}

/// The groups of programs that the command, or a test in that cluster after it, builds with a registry. An edit takes none.
fn tools_taken_by(arguments: &[&str]) -> &'static [&'static str] {
    match (arguments, arguments.contains(&"--kubevirt")) {
        (["update", ..], _) => &[],
        (["soak", ..], _) => &["cluster"],
        (["test"] | ["test", "--operator"], _) => &TOOLS_WITH_UPSTREAM,
        (_, true) => &["cluster", "virtctl", KUBEVIRT],
        (_, false) => &TOOLS_OF_TESTS,
    }
}

/// Runs the program of `tests/cluster`.
fn program(arguments: &[&str]) -> Result<()> {
    shell::run(program_command().args(arguments))
}

fn program_command() -> Command {
    shell::cargo(&["run", "--quiet", "--locked", "--package", "cluster", "--"])
}

/// Starts to build what [`prepare_tests`] takes for the tests of CI: from an empty cache, Go compiles for 20 minutes on two cores.
///
/// # Errors
/// When the program of `tests/cluster` does not compile, or cannot be started.
pub fn build_tools_in_background() -> Result<Background> {
    // Before it, not in it: cargo would let other builds wait, at this low priority.
    shell::run(&mut shell::cargo(&["build", "--quiet", "--locked", "--package", "cluster"]))?;
    let mut command = program_command();
    command.arg("tools").args(TOOLS_OF_TESTS);
    Background::start("build the cluster's programs", Priority::Lowest, &command)
}

/// Builds upstream CDI's programs, if they are not built yet, and returns the path of its importer; the others lie in the same
/// folder.
///
/// # Errors
/// When they cannot be built.
pub fn upstream_importer() -> Result<String> {
    let mut command = program_command();
    let path = shell::output(command.args(["tools", "reference"]).stderr(Stdio::inherit()))
        .context("cannot build upstream CDI's programs")?;
    Ok(path.trim().to_owned())
}

/// Builds KubeVirt's client, if it is not built yet.
///
/// # Errors
/// When it cannot be built.
pub fn virtctl() -> Result<()> {
    program(&["tools", "virtctl"])
}

/// Whether this machine can have a cluster, which takes root. In CI it must.
///
/// # Errors
/// When the user is not known.
pub fn is_possible() -> Result<bool> {
    Ok(shell::in_ci() || deps::is_root()?)
}

/// Builds what the tests of the cluster take: its programs, these groups of others, and this workspace.
///
/// # Errors
/// When something cannot be built.
pub fn prepare_tests(report: &mut Report, groups: &[&str]) -> Result<()> {
    deps::install_or_warn(deps::CLUSTER)?;
    shell::headline("the programs of the cluster, and the tests that need one");
    report.time("build the cluster's programs", || program(&[&["tools"], groups].concat()))?;
    report.time("compile the system tests", || shell::run(&mut cargo_build_all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_in_another_network_builds_no_tools() {
        let table: [(&[&str], &[&str]); 6] = [
            (&["update", "cdi-controller"], &[]),
            (&["soak", "10"], &["cluster"]),
            (&["install", "--dev"], &["cluster", "virtctl", "kubevirt"]),
            (&["install", "--tests", "--kubevirt"], &["cluster", "virtctl", "kubevirt-all"]),
            (&["test"], &["cluster", "virtctl", "kubevirt", "reference"]),
            (&["test", "--operator"], &["cluster", "virtctl", "kubevirt", "reference"]),
        ];
        for (arguments, expected) in table {
            assert_eq!(tools_taken_by(arguments), expected, "{arguments:?}");
        }
    }
}
