//! Running helper programs that are not measured.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a program to its end and returns what it printed, trimmed.
///
/// # Errors
/// When it cannot be started or fails.
pub fn output(program: &str, args: &[&str]) -> Result<String> {
    let shown = || format!("{program} {}", args.join(" "));
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot start {}", shown()))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{}", shown(), output.status, cause.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a script that makes an input, aloud; nothing may stand where `$OUT` will be unless it is whole.
///
/// # Errors
/// When it fails.
pub fn script(text: &str, variables: &[(&str, &str)]) -> Result<()> {
    eprintln!("$ {}", text.trim());
    let status = Command::new("bash")
        .args(["-euo", "pipefail", "-c", text])
        .envs(variables.iter().copied())
        .status()
        .context("cannot start bash")?;
    if !status.success() {
        bail!("failed: {status}");
    }
    Ok(())
}
