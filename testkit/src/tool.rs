//! Programs that tests need. A test whose program is missing is skipped, visibly.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A program of this machine.
#[derive(Clone, Debug)]
pub struct Tool {
    path: PathBuf,
}

/// Finds a program in `PATH` and the folders of administrators' programs. `None`: the test is skipped, see [`skip`].
///
/// # Panics
/// In CI, where every program has to be there.
pub fn require_tool(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        skip(&format!("there is no {name}"));
    }
    found.map(|path| Tool { path })
}

/// Prints why a test is skipped, and appends it to the list of which `cargo xtask test` prints a summary at its end. The
/// caller then returns.
///
/// # Panics
/// In CI (`CI` is set), where nothing may be skipped.
pub fn skip(reason: &str) {
    assert!(!in_ci(), "nothing is skipped in CI, but {reason}");
    let thread = std::thread::current();
    // The test harness names the thread of a test after it, unless tests run one at a time.
    let test = thread.name().unwrap_or("a test");
    // `eprintln!` would be captured, and is printed only for tests that fail.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(list) = std::env::var_os(SKIPPED_TESTS) {
        let list = File::options().create(true).append(true).open(list);
        let line = format!("{test}\t{reason}\n");
        // One write, so that lines of tests that run at the same time do not mix.
        list.and_then(|mut list| list.write_all(line.as_bytes()))
            .expect("the list of skipped tests can be written");
    }
}

/// Names the file to which [`skip`] appends a line: the test, a tab, the reason.
const SKIPPED_TESTS: &str = "CDI_SKIPPED_TESTS";
/// Set where all programs of the workspace are built already, as `cargo xtask test` does.
const PROGRAMS_ARE_BUILT: &str = "CDI_PROGRAMS_ARE_BUILT";

/// The program `cdi` of this workspace, built once per test process in the profile of the running test. `CDI_BINARY` names
/// another one.
pub fn cdi() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| given_or_built("CDI_BINARY", "cli", "cdi"))
}

/// The program `cdi-importer` of this workspace, built as [`cdi`] is. `CDI_IMPORTER_BINARY` names another one.
pub fn cdi_importer() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| given_or_built("CDI_IMPORTER_BINARY", "importer", "cdi-importer"))
}

/// The program `cdi-containerimage-server` of this workspace, built as [`cdi`] is. `CDI_IMAGE_SERVER_BINARY` names another
/// one.
pub fn cdi_containerimage_server() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let program = "cdi-containerimage-server";
    BUILT.get_or_init(|| given_or_built("CDI_IMAGE_SERVER_BINARY", "importer", program))
}

/// The program `cdi-controller` of this workspace, built as [`cdi`] is. `CDI_CONTROLLER_BINARY` names another one.
pub fn cdi_controller() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let program = "cdi-controller";
    BUILT.get_or_init(|| given_or_built("CDI_CONTROLLER_BINARY", "cdi-controller", program))
}

/// The program `cdi-cloner` of this workspace, built as [`cdi`] is. `CDI_CLONER_BINARY` names another one.
pub fn cdi_cloner() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| given_or_built("CDI_CLONER_BINARY", "cloner", "cdi-cloner"))
}

/// The program `cdi-uploadserver` of this workspace, built as [`cdi`] is. `CDI_UPLOADSERVER_BINARY` names another one.
pub fn cdi_uploadserver() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let program = "cdi-uploadserver";
    BUILT.get_or_init(|| given_or_built("CDI_UPLOADSERVER_BINARY", "uploadserver", program))
}

/// A program of upstream CDI, in the folder of its importer, which `CDI_REFERENCE` names: `cargo xtask cluster tools
/// reference` prints it. `None`: the test is skipped.
///
/// # Panics
/// In CI, when it is missing.
pub fn reference(program: &str) -> Option<PathBuf> {
    let importer = std::env::var_os("CDI_REFERENCE").map(PathBuf::from);
    let found = importer.map(|importer| importer.with_file_name(program));
    let found = found.filter(|path| path.is_file());
    if found.is_none() {
        skip(&format!("CDI_REFERENCE names no folder with upstream CDI's {program}"));
    }
    found
}

fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Cargo gives only a package's own tests the paths of its programs, so this has cargo build one (quick, if it is up to date)
/// and takes it from the folder above the running test.
fn given_or_built(variable: &str, package: &str, program: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    // target/debug/deps/it-0123456789abcdef → target/debug/cdi
    let test = std::env::current_exe().expect("the path of the running test");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let built = folder.join(program);
    // `cargo test --workspace` has just built it. Built by itself it would take other features of some dependencies, and
    // so minutes.
    if (in_ci() || std::env::var_os(PROGRAMS_ARE_BUILT).is_some()) && built.is_file() {
        return built;
    }
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", package, "--bin", program]).current_dir(workspace);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cannot run cargo");
    assert!(status.success(), "cannot build {program}: {status}");
    built
}

impl Tool {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs it with an empty standard input.
    pub fn command<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs it to its end and returns its standard output. A device that is busy is tried again: another test may be starting a
    /// process, which has not closed yet what it inherited.
    ///
    /// # Panics
    /// When it fails, with its standard error.
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Vec<u8> {
        const TRIES: u32 = 10;
        let mut command = self.command(arguments);
        let mut tries = 0;
        loop {
            tries += 1;
            let output =
                command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
            let errors = String::from_utf8_lossy(&output.stderr).to_lowercase();
            let busy = ["in use", "busy"].iter().any(|word| errors.contains(word));
            if output.status.success() || !busy || tries == TRIES {
                return succeeded(&command, output);
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Arguments of different types in one list: `arguments!["-f", path]`.
#[macro_export]
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { [$(::std::ffi::OsString::from(&$argument)),*] };
}

fn succeeded(command: &Command, output: Output) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {}: {errors}", output.status);
    output.stdout
}
