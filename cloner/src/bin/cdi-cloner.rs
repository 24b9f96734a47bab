//! `cdi-cloner`: the program of a clone's source pod. See the library.

use std::path::Path;
use std::process::ExitCode;

use cloner::{ProcessEnvironment, run_clone_pod};

/// Name of the command of pods that only have their volume mounted. The image has no shell: this program stands in for it.
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
    let flags = runtime::start_program(
        &["cdi_cloner", "cloner", "pipeline", "runtime"],
        &["content-type", "upload-bytes", "mount"],
    );
    let code = run_clone_pod(&ProcessEnvironment {
        root: "/".into(),
        variables: runtime::environment(),
        flags,
    });
    runtime::exit_process(code)
}
