//! The `main` of a control-plane program.

use std::error::Error;
use std::process::ExitCode;

use crate::{Flags, SandboxPolicy, chain, enter_control_plane_sandbox, start_program};

/// Parses the program's flags `own`, starts logging of `crates`, enters the sandbox and runs `run` on several threads. An error
/// is logged with its causes and ends the process with exit code 1.
pub fn run_control_plane_program<E: Into<Box<dyn Error + Send + Sync>>>(
    crates: &[&str],
    own: &[&str],
    policy: impl FnOnce(&Flags) -> SandboxPolicy,
    run: impl AsyncFnOnce(&Flags) -> Result<(), E>,
) -> ExitCode {
    let flags = start_program(crates, own);
    // The sandbox covers threads that start later, so this comes before the runtime's.
    if let Err(error) = enter_control_plane_sandbox(&flags, policy(&flags)) {
        tracing::error!("{error}");
        return ExitCode::FAILURE;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("cannot start the runtime's threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(&*error.into()));
            ExitCode::FAILURE
        }
    }
}
