//! Runs the process: from its settings to a signal to stop.

use std::path::PathBuf;
use std::sync::Arc;

use api::names::CONTROLLER_LEASE;
use auth::UnverifiedServer;
use runtime::leader_election::{Election, process_identity};
use runtime::metrics_access::{self, MetricsAccess};
use runtime::{StopSignals, health, metrics};

use crate::controllers;
use crate::engine::metrics::page;
use crate::engine::{Engine, Error, Settings, watch};
use crate::wake::settings_key;
use controller_core::config::floor;

/// Runs the controllers until a signal stops them.
///
/// # Errors
/// No client for the API server can be created, or the lease is lost: the process has to exit, and may be restarted.
pub async fn run(settings: Settings, mut stop: StopSignals) -> Result<(), Error> {
    let (kubeconfig, server) = (settings.kubeconfig.as_deref(), settings.server.as_deref());
    let client = runtime::api_server_client(kubeconfig, server).await.map_err(Error::Client)?;
    let namespace = settings.installation.namespace.clone();
    let leader_election = settings.leader_election;
    let engine = Arc::new(Engine::new(client.clone(), settings));
    serve(&engine, client.clone())?;
    serve_probes(engine.settings.health_port)?;
    let _ready = ReadyFile::create(engine.settings.ready_file.clone())?;
    let mut election = Election::new(client, &namespace, CONTROLLER_LEASE, process_identity());
    // The caches are filled while this process waits for the lease, so that it can take over at once.
    let follow = tokio::spawn(watch::follow_all(Arc::clone(&engine)));
    if leader_election {
        tokio::select! {
            () = election.win() => tracing::info!("acquired the leader-election lease"),
            signal = stop.next() => {
                stop_watches(signal, &follow);
                return Ok(());
            }
        }
    }
    let work = async {
        watch::ready(&engine.api.caches).await;
        tracing::info!("all caches are filled, starting the controllers");
        engine.queues.configs.add(settings_key());
        controllers::work(&engine).await;
    };
    let lead = async {
        if leader_election { election.keep().await } else { std::future::pending().await }
    };
    let outcome = tokio::select! {
        () = work => Ok(()),
        () = lead => Err(Error::LeadershipLost),
        signal = stop.next() => {
            stop_watches(signal, &follow);
            Ok(())
        }
    };
    if leader_election && outcome.is_ok() {
        election.resign().await;
    }
    outcome
}

/// Every write is safe to repeat, so there is nothing to complete.
fn stop_watches(signal: i32, watches: &tokio::task::JoinHandle<()>) {
    tracing::info!("stopping on signal {signal}");
    watches.abort();
}

/// Serves metrics to authorized clients, as long as the process runs. A failure is logged only: the controllers run
/// without metrics too.
fn serve(engine: &Arc<Engine>, client: kube::Client) -> Result<(), Error> {
    let port = engine.settings.metrics_port;
    if port == 0 {
        return Ok(());
    }
    let listener = metrics::listen(port).map_err(|source| Error::Local {
        action: format!("listen on port {port} for metrics"),
        source,
    })?;
    let (shown, configured) = (Arc::clone(engine), Arc::clone(engine));
    let text: metrics::Page = Arc::new(move || page(&shown));
    let least = move || configured.config().map(|config| floor(&config.spec)).unwrap_or_default();
    let tls = UnverifiedServer::new(least()).map_err(Error::Metrics)?;
    let readers = Arc::new(MetricsAccess::new(client));
    tokio::spawn(async move {
        let served = metrics_access::serve(listener, text, readers, || tls.config(&least())).await;
        let Err(error) = served;
        tracing::warn!("cannot serve metrics: {error}");
    });
    Ok(())
}

/// Serves the kubelet's probes, as long as the process runs.
fn serve_probes(port: u16) -> Result<(), Error> {
    let listener = health::listen(port).map_err(|source| Error::Local {
        action: format!("listen on port {port} for probes"),
        source,
    })?;
    tokio::spawn(async move {
        let Err(error) = health::serve(listener).await;
        tracing::warn!("cannot serve health probes: {error}");
    });
    Ok(())
}

/// The readiness file, which exists while the process runs.
struct ReadyFile(PathBuf);

impl ReadyFile {
    fn create(path: PathBuf) -> Result<Self, Error> {
        std::fs::write(&path, "").map_err(|source| Error::Local {
            action: format!("create {}", path.display()),
            source,
        })?;
        Ok(Self(path))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // The pod is terminating, and the file is deleted with it.
        let _ = std::fs::remove_file(&self.0);
    }
}
