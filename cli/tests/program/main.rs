//! The program as a person runs it: arguments in, exit code, stdout, stderr and files out.

#![allow(clippy::unwrap_used)] // helpers of tests

mod apply;
mod import;
mod inspect;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::process::{Finished, run};

/// Nothing here takes longer than a few seconds, on a machine that does nothing else.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory to work in, and the program run there.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cdi"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("CDI_PASSWORD");
        for proxy in
            ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        {
            command.env_remove(proxy);
        }
        command
    }

    fn cdi(&self, arguments: &[&str]) -> Finished {
        run(&mut self.command(arguments), LIMIT)
    }

    /// Names of all files in the directory, hidden ones too.
    fn files(&self) -> Vec<String> {
        files_in(self.folder.path())
    }
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn completions_exist_for_common_shells() {
    let bench = Bench::new();
    for (shell, part) in
        [("bash", "complete -F _cdi"), ("zsh", "#compdef cdi"), ("fish", "complete -c cdi")]
    {
        let finished = bench.cdi(&["completions", shell]).expect_success();
        assert!(finished.stdout.contains(part) && finished.stdout.contains("checksum"), "{shell}");
    }
}

#[test]
fn closed_pipe_is_not_an_error() {
    let bench = Bench::new();
    let mut command = bench.command(&["completions", "bash"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn version_is_the_packages() {
    let finished = Bench::new().cdi(&["--version"]).expect_success();
    assert_eq!(finished.stdout, format!("cdi {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn invalid_arguments_print_usage_and_exit_with_2() {
    let finished = Bench::new().cdi(&["import", "a"]);
    assert_eq!(finished.status.code(), Some(2));
    assert!(finished.stderr.contains("Usage: cdi import"), "{}", finished.stderr);
}
