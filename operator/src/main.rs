//! `cdi-operator`: the library of the same room says what it does.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
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
    let client = runtime::cluster(flags.get("kubeconfig").map(Path::new), None).await?;
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
