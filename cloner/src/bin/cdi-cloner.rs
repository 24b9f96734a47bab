//! `cdi-cloner`: the program of a clone's source pod. The library says what it does.

use std::path::Path;
use std::process::ExitCode;

use cloner::{Surroundings, run};

/// What a pod starts that is only there for its volume to be mounted. Its image needs no shell for that.
const SHELL: &str = "bash";

fn main() -> ExitCode {
    if let Some(code) = runtime::run_container_command(std::env::args()) {
        return code;
    }
    let name = std::env::args().next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == SHELL) {
        println!("the volume is mounted");
        return ExitCode::SUCCESS;
    }
    let flags = runtime::begin(
        &["cdi_cloner", "cloner", "pipeline", "runtime"],
        &["content-type", "upload-bytes", "mount"],
    );
    run(&Surroundings { root: "/".into(), variables: runtime::environment(), flags })
}
