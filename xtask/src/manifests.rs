//! `cargo xtask manifests`: what is installed in a cluster, from the types it is made of.

use anyhow::Result;

use crate::shell;

/// Writes `deploy/crds`. A test of `api` fails while it is out of date.
///
/// # Errors
/// When the types do not build.
pub fn write() -> Result<()> {
    let folder = shell::root().join("deploy/crds");
    let mut run = shell::cargo(&[
        "run",
        "--locked",
        "--quiet",
        "--package",
        "api",
        "--features",
        "cluster",
        "--example",
        "manifests",
        "--",
    ]);
    shell::run(run.arg(folder))
}
