//! The command-line program `cdi`: `import`, `inspect`, `apply`, `upload`.
//!
//! Results go to stdout, progress and errors to stderr. Code that pods need too is in
//! `importer` and `pipeline`.

pub mod access;
pub mod apply;
pub mod args;
pub mod engine;
pub mod failure;
pub mod import;
pub mod inspect;
pub mod progress;
pub mod upload;
pub mod values;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::CommandFactory;
use importer::{ProxySettings, Secret};

use args::{Cli, Command};

/// Exit code of a command that could not be carried out.
const EXIT_FAILURE: u8 = 1;

/// The values from the process environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `CDI_PASSWORD`.
    pub password: Option<Secret>,
    /// `GOOGLE_APPLICATION_CREDENTIALS`, unless it is empty.
    pub google_key: Option<PathBuf>,
    /// `http_proxy` and its relatives.
    pub proxy: ProxySettings,
    /// No progress bar: the terminal cannot return to the start of a line, or log lines would interleave.
    pub no_bar: bool,
    /// Directory of journals of imports to devices.
    pub state: Option<PathBuf>,
}

/// Runs a command. The exit code is 0 only if all requested disks are complete and durable.
pub fn run(cli: Cli, environment: Environment) -> u8 {
    let result = match cli.command {
        Command::Import(args) => import::run(*args, environment).map(|()| 0),
        Command::Inspect(args) => inspect::run(args, environment).map(|()| 0),
        Command::Apply(args) => apply::run(args, environment),
        Command::Upload(args) => upload::run(&args, &environment).map(|()| 0),
        Command::Completions { shell } => completions(shell).map(|()| 0),
    };
    result.unwrap_or_else(|error| {
        print_to_stderr(&failure::format_error(error.as_ref()));
        EXIT_FAILURE
    })
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cdi", &mut script);
    print(&String::from_utf8(script).context("the completions are not UTF-8")?)
}

/// Prints to stdout. A failed write, as on a full disk, is an error.
fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        // The reader has closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

// A failure is ignored: stderr may be closed.
fn print_to_stderr(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
