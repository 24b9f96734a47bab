//! `cargo xtask lint`: what a reviewer should not have to say.

use anyhow::Result;

use crate::{deps, links, policy, shell};

/// The cheap checks first: formatting, dependency policy, links between documents, clippy, documentation.
///
/// # Errors
/// Of the first check that fails.
pub fn run() -> Result<()> {
    deps::install(deps::BUILD)?;
    shell::headline("formatting");
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))?;
    if shell::root().join("formats/fuzz/Cargo.toml").is_file() {
        let fuzz = ["fmt", "--manifest-path", "formats/fuzz/Cargo.toml", "--check"];
        shell::run(&mut shell::cargo(&fuzz))?;
    }
    shell::headline("dependency policy");
    policy::check()?;
    shell::headline("links between documents");
    links::check()?;
    shell::headline("clippy");
    // The tests that need a cluster are no less read.
    let all = ["--workspace", "--all-targets", "--features", "e2e/cluster"];
    let mut clippy = shell::cargo(&["clippy"]);
    shell::run(clippy.args(all).args(["--locked", "--", "-D", "warnings"]))?;
    shell::headline("documentation");
    let mut doc = shell::cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    shell::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
