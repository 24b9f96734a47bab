//! `cdi-controller`: the program of the deployment `cdi-deployment`. `cdi_controller::act` says what it does.

use std::process::ExitCode;

use anyhow::{Context, Result};
use cdi_controller::act::{self, FLAGS, NAMESPACE_FILE, Settings};
use runtime::{Flags, StopSignals};

fn main() -> ExitCode {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let flags = Flags::parse(std::env::args_os().skip(1).map(text), &FLAGS);
    runtime::init_logs(flags.verbosity(), &["cdi_controller", "runtime"]);
    for flag in flags.ignored() {
        tracing::warn!("the argument {flag:?} is not known, and ignored");
    }
    match work(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(flags: &Flags) -> Result<()> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
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
