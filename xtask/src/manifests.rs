//! `cargo xtask manifests`: what is installed in a cluster, from the types it is made of.

use std::path::Path;

use anyhow::Result;

use crate::{deps, shell};

/// Writes `deploy/`. Tests of `api` and `operator` fail while it is out of date.
///
/// # Errors
/// When the types do not build.
pub fn write() -> Result<()> {
    deps::install(deps::BUILD)?;
    let folder = shell::root().join("deploy");
    example(
        &["--package", "api", "--features", "cluster", "--example", "manifests"],
        &folder.join("crds"),
    )?;
    example(&["--package", "operator", "--example", "installation"], &folder)
}

fn example(which: &[&str], folder: &Path) -> Result<()> {
    let mut run = shell::cargo(&["run", "--locked", "--quiet"]);
    shell::run(run.args(which).arg("--").arg(folder))
}
