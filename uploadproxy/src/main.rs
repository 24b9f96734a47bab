//! `cdi-uploadproxy`: the door for uploads. The library says what it does.

use std::net::TcpListener;
use std::process::ExitCode;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
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
    // Libraries look for it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = threads.block_on(async {
        let mut signals = StopSignals::listen()?;
        let listener = TcpListener::bind(settings.listen).context("cannot listen")?;
        let client = client(flags).await.context("cannot speak to the cluster")?;
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

/// As flags say, or as the pod's service account does.
async fn client(flags: &Flags) -> Result<Client> {
    let given = |name| flags.get(name).filter(|value| !value.is_empty());
    let mut config = match given("kubeconfig") {
        Some(path) => {
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
        }
        None => Config::infer().await?,
    };
    if let Some(server) = given("server") {
        config.cluster_url = server.parse()?;
    }
    Ok(Client::try_from(config)?)
}
