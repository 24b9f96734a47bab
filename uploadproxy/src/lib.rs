//! `cdi-uploadproxy`: the entry point of uploads into a cluster.
//!
//! A client presents a token; if that is valid and the PVC's upload server is ready, the request is streamed to that
//! server, and its response back. No body is buffered, no connection is reused.

mod bearer;
mod body;
mod cluster_api;
mod cors;
mod error;
mod forward;
mod page;
mod proxy;
mod recorded_end;
mod route;
mod settings;
mod target_pvc;
mod upload_server;

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

pub use cluster_api::{ClusterApi, ClusterError, KubernetesApi, UPLOAD_SERVER_PORT};
pub use settings::{SettingError, Settings};
pub use target_pvc::TargetPvc;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server certificate.
    #[error("invalid TLS config")]
    Identity(#[source] ReloadError),
    /// The TLS settings.
    #[error("invalid TLS config")]
    Tls(#[source] auth::Error),
    #[error("cannot serve uploads")]
    Serve(#[source] std::io::Error),
}

/// Serves uploads to PVCs of `cluster` until `stop` completes.
///
/// # Errors
/// See [`Error`].
pub async fn run<C: ClusterApi>(
    settings: Settings,
    cluster: C,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::Serve)?;
    let address = listener.local_addr().map_err(Error::Serve)?;
    let tls_minimum = cluster.tls_minimum();
    let identity =
        ReloadingIdentity::open(&settings.certificate, &settings.key, CERTIFICATE_RELOAD_INTERVAL);
    let identity = Arc::new(identity.map_err(Error::Identity)?);
    let tls = ReloadableTls::new(identity, &tls_minimum.borrow(), "").map_err(Error::Tls)?;
    let tls = Arc::new(tls);
    let (connections, patience) = (settings.connections, settings.patience);
    let proxy = Arc::new(Proxy::new(settings, cluster));
    tracing::info!("listening for uploads on {address}");
    let (ended, end) = watch::channel(false);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let connections = connections.div_ceil(threads);
    let limits = Limits { connections, patience, ..Limits::default() };
    let (working, mut work) = mpsc::channel::<Infallible>(1);
    for _ in 0..threads {
        let listener = listener.try_clone().map_err(Error::Serve)?;
        let (tls, tls_minimum, proxy) = (Arc::clone(&tls), tls_minimum.clone(), Arc::clone(&proxy));
        let (end, working) = (end.clone(), working.clone());
        let tls = move || tls.config(&tls_minimum.borrow(), "");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Serve)?;
        let serve = move || {
            let served = runtime.block_on(serve(listener, limits, end, tls, proxy));
            if let Err(error) = served {
                tracing::error!("cannot serve uploads: {error}");
            }
            drop(working);
        };
        thread::Builder::new().name("uploads".into()).spawn(serve).map_err(Error::Serve)?;
    }
    drop(working);
    let all_ended = work.recv();
    let stopped = async {
        stop.await;
        let _ = ended.send(true); // the other tasks wait for it
    };
    tokio::join!(all_ended, stopped);
    Ok(())
}

/// Serves on one thread, which does both sides of a transfer: two threads would wake each other for every record of
/// TLS.
async fn serve<C: ClusterApi>(
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
            async move { Ok::<_, Infallible>(proxy.respond(request, peer.address.ip()).await) }
        })
    };
    https::serve(listener, limits, end, tls, service).await;
    Ok(())
}
