//! `cdi-importer`: the program of an importer pod. See `importer::pod`.

use std::process::ExitCode;

use importer::pod::{Paths, ProcessEnvironment, run_importer};

fn main() -> ExitCode {
    runtime::start_program(&["cdi_importer", "importer", "pipeline", "runtime"], &[]);
    let variables = runtime::environment();
    run_importer(ProcessEnvironment { paths: Paths::under("/"), variables })
}
