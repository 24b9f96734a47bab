//! `cdi-importer`: the program of an importer pod. `importer::pod` says what it does.

use std::process::ExitCode;

use importer::pod::{Paths, Surroundings, run};
use runtime::Flags;

fn main() -> ExitCode {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), &[]);
    runtime::init_logs(flags.verbosity(), &["cdi_importer", "importer", "pipeline", "runtime"]);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    run(Surroundings { paths: Paths::under("/"), variables })
}
