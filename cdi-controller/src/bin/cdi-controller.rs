//! `cdi-controller`: the program of the deployment `cdi-deployment`. The library of this package implements it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use cdi_controller::{FLAGS, NAMESPACE_FILE, Settings};
use runtime::sandbox::directory_of;
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect};

fn main() -> ExitCode {
    let flags = runtime::start_program(&["cdi_controller", "runtime"], &FLAGS);
    match work(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(flags: &Flags) -> Result<()> {
    let variables = runtime::environment();
    let namespace = std::fs::read_to_string(NAMESPACE_FILE).ok();
    let settings = Settings::read(flags, &variables, namespace.as_deref())?;
    runtime::enter_control_plane_sandbox(flags, sandbox_policy(&settings))?; // while there is one thread
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let stop = StopSignals::listen().context("cannot handle signals")?;
        Ok(cdi_controller::run(settings, stop).await?)
    })
}

/// It reads certificates and keys, writes its readiness file, and serves two ports. Users choose the ports of the
/// sources that it polls.
fn sandbox_policy(settings: &Settings) -> SandboxPolicy {
    SandboxPolicy {
        read: vec![settings.certificates.clone(), settings.token_keys.clone()],
        write: vec![directory_of(&settings.ready_file)],
        listen: vec![settings.metrics_port, settings.health_port],
        connect: TcpConnect::Anywhere,
    }
}
