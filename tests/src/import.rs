//! Builds and runs `cdi import`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{Finished, Running, cdi};

// No import of these tests takes nearly as long: one that reaches the limit hangs.
pub const LIMIT: Duration = Duration::from_secs(120);

/// One call of `cdi import`, without the proxy settings of the environment.
#[derive(Debug)]
pub struct Import {
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    input: Option<PathBuf>,
}

impl Import {
    /// `cdi import SOURCE --to TARGET --json`.
    pub fn new(source: impl Into<OsString>, target: &Path) -> Self {
        let arguments =
            ["import".into(), source.into(), "--to".into(), target.into(), "--json".into()].into();
        Self { arguments, environment: Vec::new(), input: None }
    }

    /// From standard input, which is this file.
    pub fn from_stdin(file: &Path, target: &Path) -> Self {
        Self { input: Some(file.to_owned()), ..Self::new("-", target) }
    }

    /// With one more argument.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.arguments.push(name.into());
        self
    }

    /// With an option and its value.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.arguments.extend([name.into(), value.into()]);
        self
    }

    /// With a variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, to be run in some other way.
    pub fn command(&self) -> Command {
        let mut command = Command::new(cdi());
        command.args(&self.arguments).stdin(Stdio::null()).env("XDG_STATE_HOME", state());
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(input) = &self.input {
            command.stdin(std::fs::File::open(input).expect("cannot open the input"));
        }
        command
    }

    pub fn start(&self) -> Running {
        Running::start(&mut self.command())
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it hangs.
    pub fn run(&self) -> Finished {
        self.start().wait(LIMIT)
    }

    /// Runs it to success and returns the object that it printed.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn report(&self) -> serde_json::Value {
        report(&self.run().expect_success())
    }

    /// Runs it to failure and returns its error output.
    ///
    /// # Panics
    /// When it succeeds or crashes.
    #[track_caller]
    pub fn refusal(&self) -> String {
        self.run().expect_refusal()
    }
}

/// The directory of the journals of devices: in the build directory, not in the user's state directory.
pub fn state() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    test.with_file_name("it-state")
}

/// The object that `--json` printed.
///
/// # Panics
/// When it is not one.
#[track_caller]
pub fn report(finished: &Finished) -> serde_json::Value {
    serde_json::from_str(&finished.stdout)
        .unwrap_or_else(|error| panic!("{error} in {:?}", finished.stdout))
}
