//! KubeVirt's client, as users run it.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cluster::{Tools, VIRTCTL};

use crate::Test;

impl Test {
    /// A command of `virtctl` in the test's namespace, without standard input.
    ///
    /// # Errors
    /// When the program is not built: `cargo xtask cluster tools virtctl`.
    pub fn virtctl_command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(Tools::ready(&[VIRTCTL])?.path("virtctl")?);
        command.args(words).arg(format!("--namespace={}", self.namespace()));
        command.env("KUBECONFIG", self.state().kubeconfig()).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs it to its end, and returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn virtctl(&self, words: &[&str]) -> Result<String> {
        let output = self.virtctl_command(words)?.output().context("cannot start virtctl")?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        ensure!(output.status.success(), "virtctl {}: {printed}", words.join(" "));
        Ok(printed)
    }
}
