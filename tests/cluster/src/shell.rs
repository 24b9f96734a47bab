//! Running other programs to their end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail};

/// Runs it and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails; the error then holds its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start {shown}"))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed: {}\n{}", output.status, cause.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// This program. Cargo may have replaced its file since it was started: the new file has the same path.
///
/// # Errors
/// When the path is not known.
pub fn own_program() -> Result<PathBuf> {
    let path = env::current_exe().context("cannot find our own program")?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map(PathBuf::from).unwrap_or(path))
}

/// A program with its arguments.
pub fn program(name: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(words);
    command
}

/// Finds a program as a shell would, and in the directories that only root's `PATH` has.
///
/// # Errors
/// Names the Debian package that brings it.
pub fn find(program: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = env::split_paths(&path).chain(administrators);
    let found = folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()));
    found.with_context(|| {
        format!("there is no {program}; `cargo xtask deps` installs the package {package}")
    })
}

/// Tries again until it succeeds or `patience` is over.
///
/// # Errors
/// The last one.
pub fn wait<T>(
    what: &str,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if begin.elapsed() > patience => {
                return Err(error.context(format!("{what}: not within {} s", patience.as_secs())));
            }
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The command as typed at a prompt: the program by its name.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
