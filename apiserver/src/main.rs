//! `cdi-apiserver`: the library of the same room says what it does.

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
    let flags = runtime::begin(
        &["cdi_apiserver", "apiserver", "auth", "runtime"],
        &["kubeconfig", "server", "webhook-client-ca", "webhook-client-names", "require-sandbox"],
    );
    // While there is one thread.
    if let Err(error) = runtime::enter_control_plane_sandbox(&flags, sandbox_policy(&flags)) {
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

/// It reads its certificate and CAs of clients, serves two ports, and connects to the cluster's API server only.
fn sandbox_policy(flags: &Flags) -> SandboxPolicy {
    // A port that is none is reported later.
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
        tracing::info!("stopping, because of signal {signal}");
        stop.send_replace(true);
    });
    let port = variable("LISTEN_PORT").map_or(Ok(PORT), |port| port.parse());
    let port = port.context("LISTEN_PORT is no port")?;
    let listener = match variable("LISTEN_ADDRESS") {
        Some(address) => TcpListener::bind((address.as_str(), port)),
        None => runtime::metrics::listen(port),
    };
    let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
    let probes = variable("HEALTH_PORT").map_or(Ok(health::PORT), |port| port.parse());
    let probes = probes.context("HEALTH_PORT is no port")?;
    let probes = health::listen(probes)
        .with_context(|| format!("cannot listen on port {probes} for probes"))?;
    let config = Config {
        client: runtime::cluster(flags.get("kubeconfig").map(Path::new), flags.get("server"))
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
        look_again: auth::LOOK_AGAIN,
    };
    Ok(apiserver::run(config, stopped).await?)
}
