//! The program a person types: `cdi import`, `cdi inspect`, `cdi apply`, `cdi upload`.
//!
//! Results go to stdout, progress and errors to stderr. Nothing that a pod needs too lives here: the work is done by
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
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use importer::{ProxySettings, Secret};

use args::{Cli, Command};

/// What the program takes from its environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `CDI_PASSWORD`.
    pub password: Option<Secret>,
    /// `GOOGLE_APPLICATION_CREDENTIALS`, unless it is empty.
    pub google_key: Option<PathBuf>,
    /// `http_proxy` and its relatives.
    pub proxy: ProxySettings,
    /// The terminal cannot go back to the start of a line, or log lines would run into a bar.
    pub no_bar: bool,
    /// Where what has to outlive a process lies: journals of imports onto devices.
    pub state: Option<PathBuf>,
}

/// Carries out a command. The code is that of success only when all disks asked for are complete and durable.
pub fn run(cli: Cli, environment: Environment) -> ExitCode {
    let result = match cli.command {
        Command::Import(args) => import::run(*args, environment).map(|()| ExitCode::SUCCESS),
        Command::Inspect(args) => inspect::run(args, environment).map(|()| ExitCode::SUCCESS),
        Command::Apply(args) => apply::run(args, environment),
        Command::Upload(args) => upload::run(&args, &environment).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => completions(shell).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        complain(&failure::tell(error.as_ref()));
        ExitCode::FAILURE
    })
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cdi", &mut script);
    print(&String::from_utf8(script).context("the completions are not text")?)
}

/// To stdout, all of it or an error: a full disk must not pass for a printed result.
fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written {
        // Whoever read it has had enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// To stderr, if anybody still reads it.
fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
