//! KubeVirt's client, as users run it.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cluster::{Tools, VIRTCTL};
use e2e::Test;

/// Runs it in the namespace of a test, and returns what it printed.
///
/// # Errors
/// When it fails.
pub fn virtctl(test: &Test, words: &[&str]) -> Result<String> {
    let mut command = Command::new(Tools::ready(&[VIRTCTL])?.path("virtctl")?);
    command.args(words).arg(format!("--namespace={}", test.namespace()));
    command.env("KUBECONFIG", test.state().kubeconfig()).stdin(Stdio::null());
    let output = command.output().context("cannot start virtctl")?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    ensure!(output.status.success(), "virtctl {}: {printed}", words.join(" "));
    Ok(printed)
}
