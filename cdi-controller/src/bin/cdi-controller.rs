//! `cdi-controller`: the program of the deployment `cdi-deployment`. `cdi_controller::act` says what it does.

use std::process::ExitCode;

use anyhow::{Context, Result};
use cdi_controller::act::{self, FLAGS, NAMESPACE_FILE, Settings};
use runtime::{Flags, StopSignals};

fn main() -> ExitCode {
    let flags = runtime::begin(&["cdi_controller", "runtime"], &FLAGS);
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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let stop = StopSignals::listen().context("cannot mind signals")?;
        Ok(act::run(settings, stop).await?)
    })
}
