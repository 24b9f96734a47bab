//! A short fuzz run over every decoder: the corpus in the repository, then a fixed number of new inputs from a fixed seed.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::background::{Background, Priority};
use crate::shell;

const CARGO_FUZZ_VERSION: &str = "0.13.2";
/// Inputs per target, those of the corpus included.
const RUNS: u32 = 20_000;
/// Targets whose every input costs checksums of megabytes, or decoding in hundreds of chunks: fewer.
const SLOW: &[(&str, u32)] = &[("vhdx", 2_000), ("speculation", 4_000)];
/// More than any decoder may use for an input of this size, sanitizer and corpus included.
const MEMORY_MAX_MIB: u32 = 1024;
const INPUT_MAX_BYTES: u32 = 256 * 1024;

/// Why there is no fuzzing on this machine, if so.
pub fn missing() -> Option<&'static str> {
    let nightly = shell::output(&mut shell::program("rustc", &["+nightly", "--version"]));
    nightly.is_err().then_some("it needs `rustup toolchain install nightly`")
}

/// Starts [`smoke`] as a process of its own.
///
/// # Errors
/// When it cannot be started.
pub fn start() -> Result<Background> {
    let xtask = shell::own_program()?;
    Background::start("fuzz the decoders", Priority::Lowest, Command::new(xtask).arg("fuzz"))
}

/// Fuzzes each target of `formats/fuzz` a little: one on each core.
///
/// # Errors
/// When a target crashes or does not compile.
pub fn smoke() -> Result<()> {
    shell::headline("fuzzing, a fixed number of inputs");
    let folder = shell::root().join("formats/fuzz");
    let cargo_fuzz = cargo_fuzz()?;
    let fuzz = |subcommand: &str| {
        let mut command = shell::program("rustup", &["run", "nightly"]);
        command.arg(&cargo_fuzz).args(["fuzz", subcommand, "--fuzz-dir"]).arg(&folder);
        command
    };
    shell::run(&mut fuzz("build"))?;
    let mut targets = targets(&folder)?;
    // Those that take longest begin first.
    targets.sort_by_key(|target| !SLOW.iter().any(|(slow, _)| slow == target));
    let waiting = Mutex::new(VecDeque::from(targets));
    let run_waiting = || -> Result<()> {
        loop {
            let Some(target) = waiting.lock().pop_front() else { return Ok(()) };
            run_target(fuzz("run"), &folder, &target)?;
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run_waiting)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a thread that fuzzes has panicked"),
        })
    })
}

/// Completes and runs `command`. libFuzzer adds inputs to a folder of its own, so that a run leaves the corpus in the
/// repository as it is.
fn run_target(mut command: Command, folder: &Path, target: &str) -> Result<()> {
    let found = folder.join("corpus-run").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let kept = folder.join("corpus").join(target);
    command.arg(target).arg(&found);
    if kept.is_dir() {
        command.arg(&kept);
    }
    let runs = SLOW.iter().find(|(slow, _)| *slow == target).map_or(RUNS, |(_, runs)| *runs);
    command.arg("--").args([
        format!("-runs={runs}"),
        "-seed=1".to_owned(),
        // Without a line for each input that reaches more code.
        "-verbosity=0".to_owned(),
        "-print_final_stats=1".to_owned(),
        format!("-max_len={INPUT_MAX_BYTES}"),
        format!("-rss_limit_mb={MEMORY_MAX_MIB}"),
    ]);
    shell::run(&mut command)
}

/// Built once, into the cache.
fn cargo_fuzz() -> Result<PathBuf> {
    let home = shell::cache()?.join(format!("cargo-fuzz-{CARGO_FUZZ_VERSION}"));
    let program = home.join("bin/cargo-fuzz");
    if !program.is_file() {
        let mut install =
            shell::cargo(&["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ_VERSION]);
        shell::run(install.arg("--root").arg(&home))?;
    }
    Ok(program)
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let sources = folder.join("fuzz_targets");
    let entries =
        fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))?;
    let mut targets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(name) = path.file_stem()
        {
            targets.push(name.to_string_lossy().into_owned());
        }
    }
    targets.sort();
    Ok(targets)
}
