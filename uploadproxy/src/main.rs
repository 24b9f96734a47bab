//! `cdi-uploadproxy`: see the library.

use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use runtime::{Flags, SandboxPolicy, StopSignals, TcpConnect, health};
use uploadproxy::{KubernetesApi, Settings, UPLOAD_SERVER_PORT, run};

/// The exit code of Go's `klog.Fatal`, as in upstream CDI.
const FATAL: u8 = 255;

fn main() -> ExitCode {
    let flags = runtime::start_program(
        &["cdi_uploadproxy", "uploadproxy", "auth", "runtime"],
        &["kubeconfig", "server", "require-sandbox"],
    );
    let variables = runtime::environment();
    let settings = match Settings::from_environment(&variables) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("{}", runtime::chain(&error));
            return FATAL.into();
        }
    };
    let probes = variables.get("HEALTH_PORT").filter(|port| !port.is_empty());
    let probes = probes.map_or(Ok(health::PORT), |port| port.parse());
    let Ok(probes) = probes else {
        tracing::error!("cannot parse HEALTH_PORT as a port: expected 0 to 65535");
        return FATAL.into();
    };
    let policy = sandbox_policy(&settings, probes);
    if let Err(error) = runtime::enter_control_plane_sandbox(&flags, policy) {
        tracing::error!("{error}");
        return ExitCode::FAILURE;
    }
    match serve(&flags, settings, probes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The program reads its certificates, serves two ports, and connects to the cluster's API server and to upload servers.
fn sandbox_policy(settings: &Settings, probes: u16) -> SandboxPolicy {
    let files =
        [&settings.certificate, &settings.key, &settings.client_certificate, &settings.client_key];
    SandboxPolicy {
        read: files.map(|file| runtime::sandbox::directory_of(file)).into(),
        write: Vec::new(),
        listen: vec![settings.listen.port(), probes],
        connect: TcpConnect::Ports(vec![UPLOAD_SERVER_PORT]),
    }
}

fn serve(flags: &Flags, settings: Settings, probes: u16) -> Result<()> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = threads.block_on(async {
        let mut signals = StopSignals::listen()?;
        let listener = TcpListener::bind(settings.listen).context("cannot listen for uploads")?;
        let probes = health::listen(probes)
            .with_context(|| format!("cannot listen on port {probes} for probes"))?;
        let client =
            runtime::api_server_client(flags.get("kubeconfig").map(Path::new), flags.get("server"))
                .await?;
        let (cluster, following) = KubernetesApi::new(client, &settings.ca_config_map);
        let stop = async {
            let signal = signals.next().await;
            tracing::warn!("received signal {signal}, stopping");
        };
        tokio::select! {
            served = run(settings, cluster, listener, stop) => Ok(served?),
            served = health::serve(probes) => match served.context("cannot serve probes")? {},
            never = following => match never {},
        }
    });
    threads.shutdown_background(); // transfers still in progress end with the process
    served
}
