//! `cdi-operator`: the library of the same room says what it does.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use auth::UnverifiedServer;
use operator::Shown;
use runtime::readers::{self, Readers};
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect, health, metrics};

const PORT: u16 = 8443;

fn main() -> ExitCode {
    let flags = runtime::begin(
        &["cdi_operator", "operator", "auth", "runtime"],
        &["kubeconfig", "namespace", "require-sandbox"],
    );
    // It writes no file, serves two ports, and connects to the cluster's API server only.
    let policy = SandboxPolicy {
        listen: vec![PORT, health::PORT],
        connect: TcpConnect::Ports(Vec::new()),
        ..SandboxPolicy::default()
    };
    if let Err(error) = runtime::enter_control_plane_sandbox(&flags, policy) {
        tracing::error!("{error}");
        return ExitCode::FAILURE;
    }
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")
        .and_then(|runtime| runtime.block_on(run(&flags)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: &Flags) -> Result<()> {
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let client = runtime::cluster(flags.get("kubeconfig").map(Path::new), None).await?;
    let namespace = flags.get("namespace").unwrap_or(client.default_namespace()).to_owned();
    let shown = Arc::new(Shown::default());
    let page = {
        let shown = Arc::clone(&shown);
        Arc::new(move || shown.text())
    };
    let tls = UnverifiedServer::new(shown.floor()).context("cannot serve metrics")?;
    let tls = || tls.config(&shown.floor());
    let readers = Arc::new(Readers::new(client.clone()));
    let listener =
        metrics::listen(PORT).with_context(|| format!("cannot listen on port {PORT}"))?;
    let probes = health::listen(health::PORT)
        .with_context(|| format!("cannot listen on port {} for probes", health::PORT))?;
    tokio::select! {
        signal = signals.next() => tracing::info!("stopping, because of signal {signal}"),
        served = readers::serve(listener, page, readers, tls) => {
            served.context("cannot serve metrics")?;
        }
        served = health::serve(probes) => {
            served.context("cannot serve probes")?;
        }
        () = operator::keep(client, &namespace, |look| shown.take(look)) => {}
    }
    Ok(())
}
