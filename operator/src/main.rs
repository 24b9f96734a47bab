//! `cdi-operator`: the library of the same room says what it does.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use runtime::{Flags, StopSignals, metrics};

const PORT: u16 = 8443;

fn main() -> ExitCode {
    let flags = runtime::begin(
        &["cdi_operator", "operator", "auth", "runtime"],
        &["kubeconfig", "namespace"],
    );
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
    let config = match flags.get("kubeconfig") {
        Some(path) => {
            let read =
                Kubeconfig::read_from(path).with_context(|| format!("cannot read {path}"))?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(read, &options).await.context("cannot use it")?
        }
        None => kube::Config::infer().await.context("there is no way into a cluster")?,
    };
    let client = Client::try_from(config).context("cannot talk to the cluster")?;
    let namespace = flags.get("namespace").unwrap_or(client.default_namespace()).to_owned();
    let made = Arc::new(AtomicUsize::new(0));
    let page = {
        let made = Arc::clone(&made);
        move || {
            let name = "kubevirt_cdi_operator_certificates_made_total";
            let count = made.load(Ordering::Relaxed);
            format!(
                "# HELP {name} Certificates made since the start\n# TYPE {name} counter\n{name} {count}\n"
            )
        }
    };
    let listener =
        metrics::listen(PORT).with_context(|| format!("cannot listen on port {PORT}"))?;
    let count = |more| {
        made.fetch_add(more, Ordering::Relaxed);
    };
    tokio::select! {
        signal = signals.next() => tracing::info!("stopping, because of signal {signal}"),
        served = metrics::serve(listener, Arc::new(page), None) => {
            served.context("cannot serve metrics")?;
        }
        () = operator::keep(client, &namespace, count) => {}
    }
    Ok(())
}
