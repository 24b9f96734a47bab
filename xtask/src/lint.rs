//! `cargo xtask lint`: what a reviewer should not have to point out.

use anyhow::Result;

use crate::cluster::WORKSPACE;
use crate::{commits, deps, links, policy, requirements, shell, vocabulary, walk_through};

/// Runs the cheap checks first: formatting, commit titles, vocabulary, dependency policy, what documents name; then clippy and
/// the documentation.
///
/// # Errors
/// Of the first check that fails.
pub fn run() -> Result<()> {
    deps::install(deps::BUILD)?;
    shell::headline("formatting");
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--manifest-path", "formats/fuzz/Cargo.toml", "--check"];
    shell::run(&mut shell::cargo(&fuzz))?;
    shell::headline("titles of new commits");
    commits::check()?;
    shell::headline("vocabulary");
    vocabulary::check()?;
    shell::headline("dependency policy");
    policy::check()?;
    shell::headline("links between documents");
    links::check()?;
    shell::headline("tests and functions named in documents");
    requirements::check()?;
    walk_through::check()?;
    shell::headline("clippy");
    let mut clippy = shell::cargo(&["clippy"]);
    shell::run(clippy.args(WORKSPACE).args(["--all-targets", "--", "-D", "warnings"]))?;
    shell::headline("documentation");
    // There are no examples. Asked for them, cargo takes the features of tests, with which clippy has checked all dependencies.
    let targets = ["--no-deps", "--quiet", "--lib", "--bins", "--examples"];
    let mut doc = shell::cargo(&["doc"]);
    shell::run(doc.args(WORKSPACE).args(targets).env("RUSTDOCFLAGS", "-D warnings"))
}
