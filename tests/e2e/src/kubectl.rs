//! `kubectl` as users run it.

use std::io::Write;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use cluster::{KUBERNETES, State, Tools};
use serde_json::Value;

use crate::Test;

/// The result of a run of `kubectl`.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    /// 0 when it succeeded; `kubectl diff` has 1 for a difference.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// Its warnings and errors.
    pub stderr: String,
}

impl KubectlOutput {
    /// Its standard output as one object.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).context("kubectl has printed no object")
    }
}

/// Runs `kubectl` as the administrator, with `input` as its standard input.
///
/// # Errors
/// When it cannot be started. Its own failure is an exit code.
pub fn kubectl(state: &State, words: &[&str], input: &str) -> Result<KubectlOutput> {
    let mut command = cluster::kubectl(state, &Tools::ready(&[KUBERNETES])?)?;
    command.args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start kubectl")?;
    let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(input.as_bytes()); // it may not want all of it
    });
    let output = child.wait_with_output().context("cannot wait for kubectl")?;
    let _ = writer.join();
    Ok(KubectlOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

impl Test {
    /// Runs `kubectl` in the test's namespace, with `input` as its standard input.
    ///
    /// # Errors
    /// When it cannot be started. Its own failure is an exit code.
    pub fn kubectl(&self, words: &[&str], input: &str) -> Result<KubectlOutput> {
        let namespace = format!("--namespace={}", self.namespace());
        kubectl(self.state(), &[&[namespace.as_str()], words].concat(), input)
    }

    /// The same for a command that has to succeed.
    ///
    /// # Errors
    /// When it fails; contains its standard error.
    pub fn kubectl_ok(&self, words: &[&str], input: &str) -> Result<KubectlOutput> {
        let output = self.kubectl(words, input)?;
        ensure!(output.code == 0, "kubectl {}: {}", words.join(" "), output.stderr);
        Ok(output)
    }
}

/// Objects as one file for `kubectl`, without namespaces of their own: those of the test's namespace win over none.
pub fn manifest(objects: &[Value]) -> String {
    let mut documents = String::new();
    for object in objects {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        documents += &format!("---\n{object}\n");
    }
    documents
}
