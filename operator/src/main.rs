//! `cdi-operator`: see the library.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::names::OPERATOR_LEASE;
use auth::UnverifiedServer;
use kube::Client;
use operator::OperatorMetrics;
use operator::desired::OperatorEnvironment;
use runtime::leader_election::{Election, process_identity};
use runtime::metrics_access::{self, MetricsAccess};
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect, health, metrics};

const PORT: u16 = 8443;
/// `--check`: print what a pass would change, and write nothing.
const CHECK: &str = "check";

fn main() -> ExitCode {
    runtime::run_control_plane_program(
        &["cdi_operator", "operator", "auth", "runtime"],
        &[CHECK, "kubeconfig", "namespace", "require-sandbox"],
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
    let variables = runtime::environment();
    let read = |name: &str| variables.get(name).cloned();
    let environment = OperatorEnvironment::from_environment(read, &namespace)?;
    if flags.get(CHECK).is_some_and(|value| value != "false") {
        return check(client, environment).await;
    }
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
        kept = manage(client, &namespace, environment, &operator_metrics) => kept?,
    }
    Ok(())
}

/// Keeps the whole installation, or only the certificates of one that plain manifests have installed.
async fn manage(
    client: Client,
    namespace: &str,
    environment: Option<OperatorEnvironment>,
    metrics: &OperatorMetrics,
) -> Result<()> {
    let Some(environment) = environment else {
        tracing::info!("OPERATOR_VERSION and the images are not set: keeping certificates only");
        operator::manage_certificates(client, namespace, |outcome| metrics.record(outcome)).await;
        return Ok(());
    };
    let mut election = Election::new(client.clone(), namespace, OPERATOR_LEASE, process_identity());
    election.win().await;
    tracing::info!("this process leads");
    tokio::select! {
        () = operator::manage_installation(client, environment, |outcome| metrics.record_pass(outcome)) => Ok(()),
        () = election.keep() => bail!("lost the leader-election lease, exiting"),
    }
}

async fn check(client: Client, environment: Option<OperatorEnvironment>) -> Result<()> {
    let environment = environment.context("OPERATOR_VERSION and the images are not set")?;
    let report = operator::preflight(client, environment).await?;
    print!("{}", report.text());
    match report.blockers.len() {
        0 => Ok(()),
        count => bail!("{count} blockers"),
    }
}
