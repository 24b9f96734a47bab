//! The third-party programs that the tests of the cluster take, built while tests run that take none of them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{TOOLS_OF_TESTS, cargo_build_cluster, program_command};
use crate::shell;

/// A build that gets the processors' time that no other program takes: from an empty cache, Go compiles for 20 minutes on two
/// cores. A build that is dropped is killed.
pub struct Build {
    child: Child,
    /// What it prints.
    log: PathBuf,
}

impl Build {
    /// Starts it.
    ///
    /// # Errors
    /// When the program of `tests/cluster` does not compile, or cannot be started.
    pub fn start() -> Result<Self> {
        // Before it, not in it: cargo would let other builds wait, at this low priority.
        shell::run(&mut cargo_build_cluster())?;
        let log = shell::root().join("target/third-party-programs.log");
        let output =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().context("cannot duplicate a file")?;
        let cluster = program_command();
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(cluster.get_program()).args(cluster.get_args());
        nice.arg("tools").args(TOOLS_OF_TESTS).current_dir(shell::root());
        nice.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = shell::spawn(&mut nice)?;
        Ok(Self { child, log })
    }

    /// Waits for its end and prints what it has printed.
    ///
    /// # Errors
    /// When a program cannot be built.
    pub fn finish(mut self) -> Result<()> {
        let begin = Instant::now();
        let status = self.child.wait().context("cannot wait for the build of programs")?;
        let log = fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        eprint!("{log}");
        eprintln!("waited {} s for them", begin.elapsed().as_secs());
        if !status.success() {
            bail!("the third-party programs of the cluster cannot be built: {status}");
        }
        Ok(())
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // The error is that of the tests.
            let _ = shell::kill_with_descendants(&mut self.child);
        }
    }
}
