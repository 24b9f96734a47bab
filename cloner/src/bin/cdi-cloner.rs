//! `cdi-cloner`: the program of a clone's source pod. The library says what it does.

use std::process::ExitCode;

use cloner::{Surroundings, run};
use runtime::Flags;

fn main() -> ExitCode {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let own = ["content-type", "upload-bytes", "mount"];
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), &own);
    runtime::init_logs(flags.verbosity(), &["cdi_cloner", "cloner", "pipeline", "runtime"]);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    run(&Surroundings { root: "/".into(), variables, flags })
}
