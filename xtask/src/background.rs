//! Long commands that run at the same time as tests: some tests wait more than they compute.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A command whose output goes to a file. One that is dropped is killed.
pub struct Background {
    /// What it does: `build the cluster's programs`.
    purpose: &'static str,
    child: Child,
    /// What it prints.
    log: PathBuf,
}

/// Which share of the processors a command gets while others need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// What the others leave.
    Lowest,
    /// The same as the others.
    Normal,
}

impl Priority {
    /// What `nice -n` takes.
    fn niceness(self) -> &'static str {
        match self {
            Self::Lowest => "19",
            Self::Normal => "0",
        }
    }
}

impl Background {
    /// Starts it in the root of the repository, with the environment of `command`, but not its directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(purpose: &'static str, priority: Priority, command: &Command) -> Result<Self> {
        let logs = shell::root().join("target/background");
        fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let log = logs.join(format!("{}.log", purpose.replace([' ', '\''], "-")));
        let output =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot duplicate a file")?;
        let mut nice = shell::program("nice", &["-n", priority.niceness()]);
        nice.arg(command.get_program()).args(command.get_args());
        nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        nice.stdin(Stdio::null()).stdout(output).stderr(errors);
        Ok(Self { purpose, child: shell::spawn(&mut nice)?, log })
    }

    pub fn purpose(&self) -> &'static str {
        self.purpose
    }

    /// Waits for its end, prints what it has printed, and returns that.
    ///
    /// # Errors
    /// When it fails.
    pub fn finish(mut self) -> Result<String> {
        let begin = Instant::now();
        let status = self.child.wait().with_context(|| format!("cannot wait: {}", self.purpose))?;
        let log = fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        eprint!("{log}");
        eprintln!("waited {} s to {}", begin.elapsed().as_secs(), self.purpose);
        if !status.success() {
            bail!("failed to {}: {status}", self.purpose);
        }
        Ok(log)
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
        let finish = |purpose, priority, script| {
            let mut command = shell::program("sh", &["-c", script]);
            Background::start(purpose, priority, command.env("GREETING", "hello")).unwrap().finish()
        };
        let error = finish("test a failure", Priority::Lowest, "exit 3").unwrap_err().to_string();
        assert!(error.starts_with("failed to test a failure: ") && error.contains('3'), "{error}");
        let log = finish("test a success", Priority::Lowest, "nice; echo $GREETING; echo >&2");
        assert_eq!(log.unwrap(), "19\nhello\n\n");
        let usual = shell::output(&mut shell::program("nice", &[])).unwrap();
        assert_eq!(finish("test a priority", Priority::Normal, "nice").unwrap(), usual);
    }
}
