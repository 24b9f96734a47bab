//! `cdi-importer`: the program of an importer pod. `importer::pod` says what it does.

use std::process::ExitCode;

use importer::pod::{Paths, Surroundings, run};

fn main() -> ExitCode {
    runtime::begin(&["cdi_importer", "importer", "pipeline", "runtime"], &[]);
    let variables = runtime::environment();
    run(Surroundings { paths: Paths::under("/"), variables })
}
