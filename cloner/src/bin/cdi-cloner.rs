//! `cdi-cloner`: the program of a clone's source pod. The library says what it does.

use std::process::ExitCode;

use cloner::{Surroundings, run};

fn main() -> ExitCode {
    let flags = runtime::begin(
        &["cdi_cloner", "cloner", "pipeline", "runtime"],
        &["content-type", "upload-bytes", "mount"],
    );
    run(&Surroundings { root: "/".into(), variables: runtime::environment(), flags })
}
