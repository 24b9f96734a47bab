//! `cdi-uploadproxy`: the door for uploads. The library says what it does.

use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use runtime::{Flags, StopSignals};
use uploadproxy::{Kubernetes, Settings, run};

/// What Go's `klog.Fatal` ended with.
const FATAL: u8 = 255;

fn main() -> ExitCode {
    let flags = runtime::begin(
        &["cdi_uploadproxy", "uploadproxy", "auth", "runtime"],
        &["kubeconfig", "server"],
    );
    let variables = runtime::environment();
    let settings = match Settings::from_environment(&variables) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("{}", runtime::chain(&error));
            return FATAL.into();
        }
    };
    match serve(&flags, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: &Flags, settings: Settings) -> Result<()> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = threads.block_on(async {
        let mut signals = StopSignals::listen()?;
        let listener = TcpListener::bind(settings.listen).context("cannot listen")?;
        let client =
            runtime::cluster(flags.get("kubeconfig").map(Path::new), flags.get("server")).await?;
        let (cluster, following) = Kubernetes::new(client, &settings.authorities);
        let stop = async {
            let signal = signals.next().await;
            tracing::warn!("asked to stop by signal {signal}");
        };
        tokio::select! {
            served = run(settings, cluster, listener, stop) => Ok(served?),
            never = following => match never {},
        }
    });
    threads.shutdown_background(); // transfers that take longer are ended with the process
    served
}
