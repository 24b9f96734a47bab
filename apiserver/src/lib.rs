//! `cdi-apiserver`: judges objects before the cluster takes them, and gives out upload tokens.
//!
//! The cluster's API server calls it in both cases: by webhooks, for every DataVolume and its kin that is made or changed,
//! and as an aggregated API for `upload.cdi.kubevirt.io`, with the user's name in headers that only its certificate makes
//! believable. What is right is said by [`rules`], pure functions over what was looked up; nothing here writes to the
//! cluster, but for the key of the tokens where there is none.

mod app;
mod body;
mod call_limits;
mod claim_stores;
mod cluster;
mod discovery;
mod error;
mod front_proxy;
mod hooks;
mod keys;
mod live;
mod peer;
pub mod review;
mod routes;
pub mod rules;
mod tokens;
pub mod verdict;
mod watched;
mod webhook_clients;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use auth::{LiveTls, ReloadingIdentity};
use axum::Extension;
use call_limits::CallLimits;
use hyper_util::service::TowerToHyperService;
use runtime::https::{self, Limits};
use tokio::sync::watch;

/// How long a connection is kept.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60 * 60);

pub use error::Error;
pub use keys::Installation;
pub use webhook_clients::WebhookClientFile;

/// What this program is started with.
pub struct Config {
    /// The way into the cluster; its namespace is that of the installation.
    pub client: kube::Client,
    /// Where it is called.
    pub listener: TcpListener,
    /// Where the kubelet's probes are answered.
    pub probes: Option<TcpListener>,
    /// The server's certificate, as PEM. It may be renewed at any time.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// For the labels of what is made.
    pub installation: Installation,
    /// The only clients that may call webhooks. `None`: every client may.
    pub webhook_clients: Option<WebhookClientFile>,
    /// How often certificates are looked at.
    pub look_again: Duration,
}

/// Serves until `stop` says so.
///
/// # Errors
/// When it cannot begin.
pub async fn run(config: Config, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let Config {
        client,
        listener,
        probes,
        certificate,
        key,
        installation,
        webhook_clients,
        look_again,
    } = config;
    let cluster = cluster::Cluster::new(client);
    let identity = Arc::new(ReloadingIdentity::open(&certificate, &key, look_again)?);
    let webhook_clients = webhook_clients.map(|file| (file, look_again));
    let live = live::Live::read(cluster.clone(), webhook_clients).await?;
    let settings = live.settings();
    let tls = {
        let now = settings.borrow();
        LiveTls::new(identity, &live::floor(&now), &live::client_authorities(&now))?
    };
    let keys::Keys { signing: key, verifying: verifying_key } =
        keys::read_keys(&cluster, &installation).await?;
    let app = app::App {
        cluster,
        key,
        verifying_key,
        settings: live.settings(),
        room: body::Room::default(),
        limits: CallLimits::default(),
    };
    let watching = app.cluster.clone();
    let known_peers = live.settings();
    let following = tokio::spawn(async move { tokio::join!(live.follow(), watching.follow()) });
    let router = routes::router(Arc::new(app));
    listener.set_nonblocking(true).map_err(Error::Listen)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Listen)?;
    tracing::info!("serving");
    let tls = move || {
        let now = settings.borrow();
        tls.config(&live::floor(&now), &live::client_authorities(&now))
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
