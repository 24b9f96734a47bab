//! `cdi-source-update-poller`: the program of a poller job. `importer::poller` says what it does.

use std::process::ExitCode;

use importer::pod::{Paths, Surroundings};
use importer::poller::{FLAGS, run};

fn main() -> ExitCode {
    let flags = runtime::begin(&["cdi_source_update_poller", "importer"], &FLAGS);
    let variables = runtime::environment();
    match run(&flags, &Surroundings { paths: Paths::under("/"), variables }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", runtime::chain(&error));
            ExitCode::FAILURE
        }
    }
}
