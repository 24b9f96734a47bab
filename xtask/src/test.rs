//! `cargo xtask test`: everything that shows the project works. `cargo xtask soak`: more of what is left to chance.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::{cluster, deps, fuzz, shell};

/// Where property tests take their cases from.
const SEED: &str = "PROPTEST_RNG_SEED";
/// The targets that hold property tests.
const PROPERTIES: &[&str] = &["--test", "blocks", "--test", "codecs", "--test", "qcow2"];

/// Installs what is missing, then runs all tests, a short, repeatable fuzz run, and the tests of a real cluster.
///
/// Property tests take the same cases each time: a red run is red again, and a change alone makes it so.
///
/// # Errors
/// Of the first part that fails.
pub fn run() -> Result<()> {
    deps::install_or_warn(deps::ALL)?;
    shell::headline("unit, property and whole-program tests");
    let mut tests = shell::cargo(&["test", "--workspace", "--locked"]);
    if env::var_os(SEED).is_none() {
        tests.env(SEED, "1");
    }
    // Minutes to build, once: on a laptop only who has built it (`cluster tools reference`) says where it is.
    if shell::in_ci() {
        tests.env("CDI_REFERENCE", cluster::reference()?);
    }
    shell::run(&mut tests)?;
    fuzz::smoke()?;
    cluster::test()
}

/// Runs the property tests `rounds` times, each time with cases that nobody has seen.
///
/// # Errors
/// Of the first round that fails; the command that is shown before it repeats it.
pub fn soak(rounds: &str) -> Result<()> {
    let rounds: u64 = rounds.parse().with_context(|| format!("{rounds} is no number of rounds"))?;
    deps::install_or_warn(deps::ALL)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    for seed in now..now + rounds {
        shell::headline(&format!("property tests with {SEED}={seed}"));
        let mut tests = shell::cargo(&["test", "--workspace", "--locked"]);
        shell::run(tests.args(PROPERTIES).env(SEED, seed.to_string()))?;
    }
    Ok(())
}
