//! `cdi-apiserver`: see the library.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use apiserver::{Config, Installation, WebhookClientFile};
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect, health};
use tokio::sync::watch;

const PORT: u16 = 8443;
const CERTIFICATES: &str = "/var/run/certs/cdi-apiserver-server-cert";

fn main() -> ExitCode {
    runtime::run_control_plane_program(
        &["cdi_apiserver", "apiserver", "auth", "runtime"],
        &["kubeconfig", "server", "webhook-client-ca", "webhook-client-names", "require-sandbox"],
        sandbox_policy,
        run,
    )
}

/// The program reads its certificate and the CAs of clients, serves two ports, and connects to the cluster's API server only.
fn sandbox_policy(flags: &Flags) -> SandboxPolicy {
    // `run` reports an invalid port.
    let port = |name: &str, default| {
        variable(name).map_or(Some(default), |port| port.parse().ok()).unwrap_or_default()
    };
    let files = [("SERVER_CERT_FILE", "tls.crt"), ("SERVER_KEY_FILE", "tls.key")];
    let files = files.map(|(name, default)| certificate_file(name, default));
    let client_ca =
        flags.get("webhook-client-ca").filter(|path| !path.is_empty()).map(PathBuf::from);
    SandboxPolicy {
        read: files
            .iter()
            .chain(&client_ca)
            .map(|file| runtime::sandbox::directory_of(file))
            .collect(),
        write: Vec::new(),
        listen: vec![port("LISTEN_PORT", PORT), port("HEALTH_PORT", health::PORT)],
        connect: TcpConnect::Ports(Vec::new()),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn certificate_file(name: &str, default: &str) -> PathBuf {
    variable(name).map_or_else(|| PathBuf::from(CERTIFICATES).join(default), PathBuf::from)
}

async fn run(flags: &Flags) -> Result<()> {
    let mut signals = StopSignals::listen().context("cannot listen for signals")?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let signal = signals.next().await;
        tracing::info!("received signal {signal}, stopping");
        stop.send_replace(true);
    });
    let port = variable("LISTEN_PORT").map_or(Ok(PORT), |port| port.parse());
    let port = port.context("cannot parse LISTEN_PORT as a port")?;
    let listener = match variable("LISTEN_ADDRESS") {
        Some(address) => TcpListener::bind((address.as_str(), port)),
        None => runtime::metrics::listen(port),
    };
    let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
    let probes = variable("HEALTH_PORT").map_or(Ok(health::PORT), |port| port.parse());
    let probes = probes.context("cannot parse HEALTH_PORT as a port")?;
    let probes = health::listen(probes)
        .with_context(|| format!("cannot listen on port {probes} for probes"))?;
    let config = Config {
        client: runtime::api_server_client(
            flags.get("kubeconfig").map(Path::new),
            flags.get("server"),
        )
        .await?,
        listener,
        probes,
        certificate: certificate_file("SERVER_CERT_FILE", "tls.crt"),
        key: certificate_file("SERVER_KEY_FILE", "tls.key"),
        installation: Installation {
            part_of: variable("INSTALLER_PART_OF_LABEL"),
            version: variable("INSTALLER_VERSION_LABEL"),
        },
        webhook_clients: WebhookClientFile::from_settings(
            flags.get("webhook-client-ca"),
            flags.get("webhook-client-names"),
        ),
        reload_interval: auth::CERTIFICATE_RELOAD_INTERVAL,
    };
    Ok(apiserver::run(config, stopped).await?)
}
