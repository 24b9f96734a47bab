//! The door through which uploads come into a cluster.
//!
//! A client shows a token; if that is good and the claim's upload server is ready, everything it sends is handed on to that
//! server as it comes, and the server's answer handed back. Nothing is kept here: not a body, not a connection.

mod bearer;
mod body;
mod claim;
mod cluster;
mod cors;
mod error;
mod forward;
mod page;
mod proxy;
mod ready;
mod route;
mod settings;

use std::convert::Infallible;
use std::net::TcpListener;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use auth::{CERTIFICATE_RELOAD_INTERVAL, ReloadError, ReloadableTls, ReloadingIdentity};
use hyper::service::service_fn;
use runtime::https::{self, Limits, Peer};
use rustls::ServerConfig;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};

use proxy::Proxy;

pub use claim::Claim;
pub use cluster::{Cluster, ClusterError, Kubernetes, UPLOAD_SERVER_PORT};
pub use settings::{BadSetting, Settings};

/// Why a process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What it proves itself with.
    #[error("invalid TLS config")]
    Identity(#[source] ReloadError),
    /// The same.
    #[error("invalid TLS config")]
    Tls(#[source] auth::Error),
    /// The network.
    #[error("cannot serve")]
    Serve(#[source] std::io::Error),
}

/// Serves at `listener` for the claims of `cluster` until `stop` ends.
///
/// # Errors
/// See [`Error`].
pub async fn run<C: Cluster>(
    settings: Settings,
    cluster: C,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::Serve)?;
    let address = listener.local_addr().map_err(Error::Serve)?;
    let floor = cluster.floor();
    let identity =
        ReloadingIdentity::open(&settings.certificate, &settings.key, CERTIFICATE_RELOAD_INTERVAL);
    let identity = Arc::new(identity.map_err(Error::Identity)?);
    let tls = ReloadableTls::new(identity, &floor.borrow(), "").map_err(Error::Tls)?;
    let tls = Arc::new(tls);
    let (connections, patience) = (settings.connections, settings.patience);
    let proxy = Arc::new(Proxy::new(settings, cluster));
    tracing::info!("uploads are expected at {address}");
    let (ended, end) = watch::channel(false);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let connections = connections.div_ceil(threads);
    let limits = Limits { connections, patience, ..Limits::default() };
    let (working, mut work) = mpsc::channel::<Infallible>(1);
    for _ in 0..threads {
        let listener = listener.try_clone().map_err(Error::Serve)?;
        let (tls, floor, proxy) = (Arc::clone(&tls), floor.clone(), Arc::clone(&proxy));
        let (end, working) = (end.clone(), working.clone());
        let tls = move || tls.config(&floor.borrow(), "");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Serve)?;
        let serve = move || {
            let served = runtime.block_on(serve(listener, limits, end, tls, proxy));
            if let Err(error) = served {
                tracing::error!("cannot serve: {error}");
            }
            drop(working);
        };
        thread::Builder::new().name("uploads".into()).spawn(serve).map_err(Error::Serve)?;
    }
    drop(working);
    let all_ended = work.recv();
    let stopped = async {
        stop.await;
        let _ = ended.send(true); // they wait for that
    };
    tokio::join!(all_ended, stopped);
    Ok(())
}

/// Serves on one thread, which carries each transfer from one side to the other: two would wake each other for every record of
/// TLS.
async fn serve<C: Cluster>(
    listener: TcpListener,
    limits: Limits,
    end: watch::Receiver<bool>,
    tls: impl Fn() -> Arc<ServerConfig>,
    proxy: Arc<Proxy<C>>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let service = move |peer: Peer| {
        let proxy = Arc::clone(&proxy);
        service_fn(move |request| {
            let proxy = Arc::clone(&proxy);
            async move { Ok::<_, Infallible>(proxy.answer(request, peer.address.ip()).await) }
        })
    };
    https::serve(listener, limits, end, tls, service).await;
    Ok(())
}
