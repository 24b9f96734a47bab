//! `cdi-source-update-poller`: the program of a poller job. `importer::poller` says what it does.

use std::process::ExitCode;

use importer::pod::{Paths, Surroundings};
use importer::poller::{FLAGS, run};
use runtime::Flags;

fn main() -> ExitCode {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), &FLAGS);
    runtime::init_logs(flags.verbosity(), &["cdi_source_update_poller", "importer"]);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    match run(&flags, &Surroundings { paths: Paths::under("/"), variables }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", runtime::chain(&error));
            ExitCode::FAILURE
        }
    }
}
