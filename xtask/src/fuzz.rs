//! A short fuzz run over every decoder: the corpus in the repository, then a fixed number of new inputs from a fixed seed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

const CARGO_FUZZ_VERSION: &str = "0.13.2";
/// Inputs per target, those of the corpus included.
const RUNS: u32 = 20_000;
/// Targets whose every input costs checksums of megabytes, or decoding in hundreds of chunks: fewer.
const SLOW: &[&str] = &["vhdx", "speculation"];
const SLOW_RUNS: u32 = 4_000;
/// More than any decoder may use for an input of this size, sanitizer and corpus included.
const MEMORY_MAX_MIB: u32 = 1024;
const INPUT_MAX_BYTES: u32 = 256 * 1024;

/// Why there is no fuzzing on this machine, if so.
pub fn missing() -> Option<&'static str> {
    let nightly = shell::output(&mut shell::program("rustc", &["+nightly", "--version"]));
    nightly.is_err().then_some("it needs `rustup toolchain install nightly`")
}

/// Fuzzes each target of `formats/fuzz` a little.
///
/// # Errors
/// When a target crashes or does not compile.
pub fn smoke() -> Result<()> {
    shell::headline("fuzzing, a fixed number of inputs");
    let folder = shell::root().join("formats/fuzz");
    let cargo_fuzz = cargo_fuzz()?;
    for target in targets(&folder)? {
        fuzz(&cargo_fuzz, &folder, &target)?;
    }
    Ok(())
}

/// libFuzzer adds inputs to a folder of its own, so that a run leaves the corpus in the repository as it is.
fn fuzz(cargo_fuzz: &Path, folder: &Path, target: &str) -> Result<()> {
    let found = folder.join("corpus-run").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let kept = folder.join("corpus").join(target);
    let mut command = shell::program("rustup", &["run", "nightly"]);
    command.arg(cargo_fuzz).args(["fuzz", "run", "--fuzz-dir"]).arg(folder).arg(target).arg(&found);
    if kept.is_dir() {
        command.arg(&kept);
    }
    let runs = if SLOW.contains(&target) { SLOW_RUNS } else { RUNS };
    command.arg("--").args([
        format!("-runs={runs}"),
        "-seed=1".to_owned(),
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
