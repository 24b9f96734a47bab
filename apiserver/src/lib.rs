//! `cdi-apiserver`: admission webhooks, and the API that issues upload tokens.
//!
//! The cluster's API server is the client of both: of the webhooks, for each object that is created or updated, and of the
//! aggregated API `upload.cdi.kubevirt.io`, where it names the user in headers that count only with its client
//! certificate. [`rules`] are pure functions over facts that were looked up. The program writes nothing to the
//! cluster except the Secret of the token keys, if it does not exist.

pub mod admission_result;
mod api_client;
mod app;
mod body_memory;
mod call_limits;
mod claim_stores;
mod discovery;
mod error;
mod front_proxy;
mod hooks;
mod keys;
mod peer;
pub mod review;
mod routes;
pub mod rules;
mod settings;
mod tokens;
mod watched_store;
mod webhook_clients;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use auth::{ReloadableTls, ReloadingIdentity};
use axum::Extension;
use call_limits::CallLimits;
use hyper_util::service::TowerToHyperService;
use runtime::https::{self, Limits};
use tokio::sync::watch;

/// Maximum age of a connection.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60 * 60);

pub use error::Error;
pub use keys::Installation;
pub use webhook_clients::WebhookClientFile;

pub struct Config {
    /// Its default namespace is that of the installation.
    pub client: kube::Client,
    pub listener: TcpListener,
    /// For the kubelet's probes.
    pub probes: Option<TcpListener>,
    /// The server's certificate, as PEM; reloaded when it changes.
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub installation: Installation,
    /// The only clients that may call webhooks. `None`: every client may.
    pub webhook_clients: Option<WebhookClientFile>,
    /// How often certificate files are read again.
    pub reload_interval: Duration,
}

/// Serves until `stop` is true.
///
/// # Errors
/// When the program cannot start.
pub async fn run(config: Config, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let Config {
        client,
        listener,
        probes,
        certificate,
        key,
        installation,
        webhook_clients,
        reload_interval,
    } = config;
    let cluster = api_client::ApiClient::new(client);
    let identity = Arc::new(ReloadingIdentity::open(&certificate, &key, reload_interval)?);
    let webhook_clients = webhook_clients.map(|file| (file, reload_interval));
    let live = settings::SettingsWatcher::read(cluster.clone(), webhook_clients).await?;
    let settings = live.settings();
    let tls = {
        let now = settings.borrow();
        ReloadableTls::new(identity, &settings::tls_minimum(&now), &settings::client_cas(&now))?
    };
    let keys::Keys { signing: key, verifying: verifying_key, secret } =
        keys::read_keys(&cluster, &installation).await?;
    let app = app::App {
        cluster,
        key,
        verifying_key,
        settings: live.settings(),
        body_memory: body_memory::BodyMemory::default(),
        limits: CallLimits::default(),
    };
    let watching = app.cluster.clone();
    let known_peers = live.settings();
    let following = tokio::spawn(async move {
        let keys = keys::keep_secret(watching.clone(), secret);
        tokio::join!(live.follow(), watching.follow(), keys)
    });
    let router = routes::router(Arc::new(app));
    listener.set_nonblocking(true).map_err(Error::Listen)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Listen)?;
    tracing::info!("serving");
    let tls = move || {
        let now = settings.borrow();
        tls.config(&settings::tls_minimum(&now), &settings::client_cas(&now))
    };
    let service = move |peer: https::Peer| {
        let peer = peer::Peer::new(&peer, &known_peers.borrow());
        TowerToHyperService::new(router.clone().layer(Extension(peer)))
    };
    let probes = tokio::spawn(async move {
        let Err(error) = runtime::health::serve(probes).await;
        tracing::warn!("cannot serve health probes: {error}");
    });
    // Requests take seconds, and clients connect again.
    let limits = Limits { lifetime: Some(CONNECTION_LIFETIME), ..Limits::default() };
    https::serve(listener, limits, stop, tls, service).await;
    probes.abort();
    following.abort();
    Ok(())
}
