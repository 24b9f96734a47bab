//! `cdi-importer`: the program of an importer pod. See `importer::pod`.

use importer::pod::{Paths, ProcessEnvironment, run_importer};

fn main() {
    runtime::start_program(&["cdi_importer", "importer", "pipeline", "runtime"], &[]);
    let variables = runtime::environment();
    let code = run_importer(ProcessEnvironment { paths: Paths::under("/"), variables });
    runtime::exit_process(code);
}
