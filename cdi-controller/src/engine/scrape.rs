//! Scrapes the progress of a worker pod from its metrics.

use api::PodPhase;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use contract::import::name;
use contract::paths;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use runtime::MetricsKey;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use controller_core::{meta, progress};

/// The importer's progress metric.
pub const IMPORT: &str = "kubevirt_cdi_import_progress_total";
/// The progress metric of the pod that reads the source of a copy.
pub const CLONE: &str = "kubevirt_cdi_clone_progress_total";
/// The upload server's progress metric.
const UPLOAD: &str = "kubevirt_cdi_upload_progress_total";
/// For the whole scrape. Progress is not worth a longer wait.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A page of metrics has some hundred bytes.
const PAGE_LEN_MAX: usize = 1 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The progress of a worker in percent. `None`: the pod does not run, was not created by this controller, or does not
/// respond.
pub async fn percentage(pod: &Pod, metric: &str) -> Option<f64> {
    let address = address(pod)?;
    let key: MetricsKey = variable(pod, name::METRICS_KEY)?.parse().ok()?;
    scrape(pod, address, key.client().ok()?, address.ip().into(), metric).await
}

/// The progress of the upload that a server receives, in percent. The server's certificate is for `host` and is signed
/// by one of `authorities` (PEM). `None`: no client uploads, or the server does not respond.
pub async fn uploaded(pod: &Pod, authorities: &str, host: String) -> Option<f64> {
    let tls = auth::anonymous_client_config(authorities).ok()?;
    scrape(pod, address(pod)?, tls, host.try_into().ok()?, UPLOAD).await
}

/// The metrics address of a running pod.
fn address(pod: &Pod) -> Option<SocketAddr> {
    let status = pod.status.as_ref().filter(|_| meta::pod_phase(pod) == PodPhase::Running)?;
    let address: IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    Some(SocketAddr::from((address, paths::METRICS_PORT)))
}

async fn scrape(
    pod: &Pod,
    address: SocketAddr,
    tls: ClientConfig,
    name: ServerName<'static>,
    metric: &str,
) -> Option<f64> {
    let owner = variable(pod, name::OWNER_UID)?;
    let page = match tokio::time::timeout(TIMEOUT, page(address, tls, name)).await {
        Ok(Ok(page)) => page,
        Ok(Err(error)) => {
            tracing::debug!("cannot scrape the progress of the worker at {address}: {error}");
            return None;
        }
        Err(_) => return None,
    };
    progress::measured(&page, metric, owner)
}

/// A variable of the worker's container.
fn variable<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let variable = container.env.iter().flatten().find(|variable| variable.name == name)?;
    variable.value.as_deref()
}

async fn page(
    address: SocketAddr,
    tls: ClientConfig,
    name: ServerName<'static>,
) -> Result<String, Failure> {
    let connector = TlsConnector::from(Arc::new(tls));
    let stream = TcpStream::connect(address).await?;
    let stream = connector.connect(name, stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = hyper::Request::get("/metrics")
        .header(hyper::header::HOST, address.to_string())
        .body(Empty::<hyper::body::Bytes>::new())?;
    let page = async {
        let response = sender.send_request(request).await?;
        let body = Limited::new(response.into_body(), PAGE_LEN_MAX).collect().await?;
        Ok::<_, Failure>(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    };
    tokio::select! {
        page = page => page,
        ended = connection => {
            ended?;
            Err("the connection ended before the response".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::metrics;
    use serde_json::json;

    use super::*;

    fn pod(key: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "spec": { "containers": [{ "name": "importer", "env": [
                { "name": "METRICS_KEY", "value": key }, { "name": "OWNER_UID", "value": "o" },
            ] }] },
            "status": { "phase": phase, "podIP": "127.0.0.1" },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn worker_is_verified_by_its_key() {
        let (key, other) = (MetricsKey::random().unwrap(), MetricsKey::random().unwrap());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = metrics::counter(IMPORT, "help", ("ownerUID", "o"), Some(12.5));
        let served_page: metrics::Page = Arc::new(move || text.clone());
        let server = tokio::spawn(metrics::serve(listener, served_page, key.clone().into()));
        let fetch = |key: &MetricsKey| page(address, key.client().unwrap(), address.ip().into());
        let text = fetch(&key).await.unwrap();
        assert_eq!(progress::measured(&text, IMPORT, "o"), Some(12.5));
        assert!(fetch(&other).await.is_err());
        server.abort();
    }

    #[tokio::test]
    async fn upload_server_is_verified_by_its_name_and_its_ca() {
        let (now, day) = (std::time::SystemTime::now(), Duration::from_secs(86_400));
        let create = || auth::CertificateAuthority::create("signer", day, now).unwrap();
        let (ours, other) = (create(), create());
        let signer = auth::CertificateAuthority::from_identity(&ours).unwrap();
        let server = signer.server(&["server.vms.svc".to_owned()], day, now).unwrap();
        let tls = auth::server_config(
            server.certificate.as_bytes(),
            server.key.as_bytes(),
            other.certificate.as_bytes(), // of clients, who need none here
            &auth::TlsMinimum::default(),
        );
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls.unwrap()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that rejects the certificate has closed the connection.
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let service = hyper::service::service_fn(|_| async {
                    Ok::<_, std::convert::Infallible>(hyper::Response::new("yes".to_owned()))
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            }
        });
        let fetch = async |authority: &str, name: &'static str| {
            page(
                address,
                auth::anonymous_client_config(authority).unwrap(),
                name.try_into().unwrap(),
            )
            .await
        };
        assert_eq!(fetch(&ours.certificate, "server.vms.svc").await.unwrap(), "yes");
        assert!(fetch(&ours.certificate, "other.vms.svc").await.is_err());
        assert!(fetch(&other.certificate, "server.vms.svc").await.is_err());
    }

    #[tokio::test]
    async fn pod_that_does_not_run_is_not_scraped() {
        let key = MetricsKey::random().unwrap().to_text();
        assert_eq!(percentage(&pod(&key, "Pending"), IMPORT).await, None);
        assert_eq!(percentage(&pod("no key", "Running"), IMPORT).await, None);
        assert_eq!(uploaded(&pod(&key, "Running"), "no authority", "host".into()).await, None);
    }
}
