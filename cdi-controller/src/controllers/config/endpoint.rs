//! The endpoint of the upload proxy for clients outside of the cluster.

use std::time::SystemTime;

use api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::engine::{Engine, Error};
use controller_core::config::{self, Certificate, OpenEndpoint, ProxyEndpoint};

/// The certificate in a Secret of the type `kubernetes.io/tls`.
const TLS_CERTIFICATE: &str = "tls.crt";

/// How clients outside of the cluster reach the upload proxy: an Ingress with the certificates that it shows, or a Route,
/// which shows those of the cluster.
pub(super) async fn find_endpoint(engine: &Engine) -> Result<ProxyEndpoint, Error> {
    let namespace = &engine.settings.installation.namespace;
    let caches = &engine.api.caches;
    if let Some((host, secrets)) = config::ingress_endpoint(&caches.ingresses.list()) {
        // Which certificate an Ingress without a Secret shows is not known.
        let Some(name) = secrets.first() else {
            return Ok(ProxyEndpoint::Open(OpenEndpoint { host, certificates: None }));
        };
        let secret = engine.api.get::<Secret>(namespace, name).await?;
        let bytes = secret.and_then(|secret| secret.data?.remove(TLS_CERTIFICATE));
        let bytes = bytes.ok_or_else(|| Error::NoCertificate { secret: name.clone() })?;
        return Ok(ProxyEndpoint::Open(open_endpoint(
            host,
            Some(&String::from_utf8_lossy(&bytes.0)),
        )));
    }
    let routes = caches.routes.list();
    let Some(host) = config::route_endpoint(&routes) else {
        return Ok(if caches.routes.is_settled() {
            ProxyEndpoint::Closed
        } else {
            ProxyEndpoint::NotKnownYet
        });
    };
    let map = engine.api.get::<ConfigMap>(namespace, names::ROOT_CA_CONFIG_MAP).await?;
    let pem = map.and_then(|map| map.data?.remove(names::ROOT_CA_KEY));
    Ok(ProxyEndpoint::Open(open_endpoint(host.to_owned(), pem.as_deref())))
}

fn open_endpoint(host: String, pem: Option<&str>) -> OpenEndpoint {
    let read =
        |pem| auth::Certificate::read_all(pem).iter().filter_map(certificate_facts).collect();
    OpenEndpoint { host, certificates: pem.map(read) }
}

fn certificate_facts(read: &auth::Certificate) -> Option<Certificate> {
    let moment = |time: SystemTime| Timestamp::try_from(time).ok();
    Some(Certificate {
        pem: read.pem(),
        subject: read.subject.clone(),
        issuer: read.issuer.clone(),
        names: read.hosts.clone(),
        not_before: moment(read.not_before)?,
        not_after: moment(read.not_after)?,
    })
}
