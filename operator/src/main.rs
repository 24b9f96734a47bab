//! `cdi-operator`: see the library.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use auth::UnverifiedServer;
use operator::OperatorMetrics;
use runtime::metrics_access::{self, MetricsAccess};
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect, health, metrics};

const PORT: u16 = 8443;

fn main() -> ExitCode {
    runtime::run_control_plane_program(
        &["cdi_operator", "operator", "auth", "runtime"],
        &["kubeconfig", "namespace", "require-sandbox"],
        |_| sandbox_policy(),
        run,
    )
}

/// The program writes no file, serves two ports, and connects to the cluster's API server only.
fn sandbox_policy() -> SandboxPolicy {
    SandboxPolicy {
        listen: vec![PORT, health::PORT],
        connect: TcpConnect::Ports(Vec::new()),
        ..SandboxPolicy::default()
    }
}

async fn run(flags: &Flags) -> Result<()> {
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let client = runtime::api_server_client(flags.get("kubeconfig").map(Path::new), None).await?;
    let namespace = flags.get("namespace").unwrap_or(client.default_namespace()).to_owned();
    let operator_metrics = Arc::new(OperatorMetrics::default());
    let page = {
        let operator_metrics = Arc::clone(&operator_metrics);
        Arc::new(move || operator_metrics.text())
    };
    let tls =
        UnverifiedServer::new(operator_metrics.tls_minimum()).context("cannot serve metrics")?;
    let tls = || tls.config(&operator_metrics.tls_minimum());
    let access = Arc::new(MetricsAccess::new(client.clone()));
    let listener =
        metrics::listen(PORT).with_context(|| format!("cannot listen on port {PORT}"))?;
    let probes = health::listen(health::PORT)
        .with_context(|| format!("cannot listen on port {} for probes", health::PORT))?;
    tokio::select! {
        signal = signals.next() => tracing::info!("received signal {signal}, stopping"),
        served = metrics_access::serve(listener, page, access, tls) => {
            served.context("cannot serve metrics")?;
        }
        served = health::serve(probes) => {
            served.context("cannot serve probes")?;
        }
        () = operator::manage_certificates(client, &namespace, |outcome| operator_metrics.record(outcome)) => {}
    }
    Ok(())
}
