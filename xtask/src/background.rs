//! Long commands that take what the tests leave: some tests wait more than they compute.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A command at the lowest priority. One that is dropped is killed.
pub struct Background {
    /// What it does: `build the cluster's programs`.
    purpose: &'static str,
    child: Child,
    /// What it prints.
    log: PathBuf,
}

impl Background {
    /// Starts it. The environment and the directory of `command` are not taken over: it runs in the root of the repository.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(purpose: &'static str, command: &Command) -> Result<Self> {
        let logs = shell::root().join("target/background");
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let log = logs.join(format!("{}.log", purpose.replace([' ', '\''], "-")));
        let output =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot duplicate a file")?;
        let mut nice = shell::program("nice", &["-n", "19"]);
        nice.arg(command.get_program()).args(command.get_args());
        nice.stdin(Stdio::null()).stdout(output).stderr(errors);
        Ok(Self { purpose, child: shell::spawn(&mut nice)?, log })
    }

    pub fn purpose(&self) -> &'static str {
        self.purpose
    }

    /// Waits for its end and prints what it has printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn finish(mut self) -> Result<()> {
        let begin = Instant::now();
        let status = self.child.wait().with_context(|| format!("cannot wait: {}", self.purpose))?;
        let log = fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        eprint!("{log}");
        eprintln!("waited {} s to {}", begin.elapsed().as_secs(), self.purpose);
        if !status.success() {
            bail!("failed to {}: {status}", self.purpose);
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // The error is that of the tests.
            let _ = shell::kill_with_descendants(&mut self.child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_purpose_and_success_is_none() {
        let finish = |purpose, script| {
            Background::start(purpose, &shell::program("sh", &["-c", script])).unwrap().finish()
        };
        let error = finish("test a failure", "exit 3").unwrap_err().to_string();
        assert!(error.starts_with("failed to test a failure: ") && error.contains('3'), "{error}");
        finish("test a success", "nice | grep -x 19").unwrap();
    }
}
