//! The proxy's view of a cluster, and its implementation by the Kubernetes API.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::time::Duration;

use api::metadata::{is_namespace_name, is_object_name};
use api::names::{CDI_CONFIG, GROUP};
use api::v1beta1::{CdiConfig, ResolvedTlsProfile, TlsSecurityProfile, resolve_tls_profile};
use auth::TlsMinimum;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{WatchEvent, WatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::target_pvc::TargetPvc;

/// Port of upload servers.
pub const UPLOAD_SERVER_PORT: u16 = 8443;
/// The kind of `dataSourceRef` that makes the controller fill a prime PVC.
const UPLOAD_SOURCE: &str = "VolumeUploadSource";
/// Key of the CA certificates in a ConfigMap.
const BUNDLE_KEY: &str = "ca-bundle.crt";
/// Polling interval if watching is not permitted, and pause after a failed watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// No request waits longer for a PVC.
const WATCH_SECONDS: u32 = 15;

/// What the proxy reads from a cluster. Tests have a fake.
pub trait ClusterApi: Send + Sync + 'static {
    fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<TargetPvc>, ClusterError>> + Send;

    /// Returns once `claim` has changed, possibly earlier.
    fn changed(&self, claim: &TargetPvc) -> impl Future<Output = ()> + Send;

    /// The current CAs of upload servers, as PEM.
    fn upload_server_cas(&self) -> impl Future<Output = Result<String, ClusterError>> + Send;

    /// The TLS minimum for clients, and its changes.
    fn tls_minimum(&self) -> watch::Receiver<TlsMinimum>;

    /// The address of an upload server's host.
    fn address(&self, host: &str) -> String {
        format!("{host}:{UPLOAD_SERVER_PORT}")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct ClusterError {
    what: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl ClusterError {
    /// `what`: verb and object of the failed request.
    pub fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

pub struct KubernetesApi {
    client: Client,
    namespace: String,
    /// The ConfigMap with the CAs of upload servers.
    bundle: String,
    tls_minimum: watch::Receiver<TlsMinimum>,
}

impl KubernetesApi {
    /// The future watches the TLS settings as long as it is polled.
    pub fn new(client: Client, bundle: &str) -> (Self, impl Future<Output = Infallible> + use<>) {
        let (changed, tls_minimum) = watch::channel(TlsMinimum::default());
        let following = follow_profile(client.clone(), changed);
        let namespace = client.default_namespace().to_owned();
        (Self { client, namespace, bundle: bundle.to_owned(), tls_minimum }, following)
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn next_version(&self, claim: &TargetPvc) -> kube::Result<()> {
        let name = format!("metadata.name={}", claim.name);
        let parameters = WatchParams::default().fields(&name).timeout(WATCH_SECONDS);
        let versions = self.claims(&claim.namespace).watch(&parameters, &claim.version).await?;
        let mut versions = std::pin::pin!(versions);
        while let Some(version) = versions.next().await {
            match version? {
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
                WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => break,
            }
        }
        Ok(())
    }
}

impl ClusterApi for KubernetesApi {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<TargetPvc>, ClusterError> {
        if !is_namespace_name(namespace) || !is_object_name(name) {
            return Ok(None);
        }
        let found = self.claims(namespace).get_opt(name).await;
        let found = found.map_err(|error| ClusterError::new("read the PVC", error))?;
        Ok(found.map(|found| read(namespace, name, found)))
    }

    /// With permission to read PVCs but not to watch them, as an earlier version's roles have it, returns after a pause.
    async fn changed(&self, claim: &TargetPvc) {
        if let Err(error) = self.next_version(claim).await {
            tracing::debug!("cannot watch a PVC: {error}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn upload_server_cas(&self) -> Result<String, ClusterError> {
        let what = || format!("read {BUNDLE_KEY} of the ConfigMap {}", self.bundle);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get(&self.bundle).await.map_err(|error| ClusterError::new(what(), error))?;
        let text = map.data.and_then(|mut data| data.remove(BUNDLE_KEY));
        text.ok_or_else(|| ClusterError::new(what(), "the key does not exist"))
    }

    fn tls_minimum(&self) -> watch::Receiver<TlsMinimum> {
        self.tls_minimum.clone()
    }
}

fn read(namespace: &str, name: &str, found: PersistentVolumeClaim) -> TargetPvc {
    let source = found.spec.and_then(|spec| spec.data_source_ref);
    let is_populated = source.is_some_and(|source| {
        source.kind == UPLOAD_SOURCE && source.api_group.as_deref() == Some(GROUP)
    });
    TargetPvc {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        version: found.metadata.resource_version.unwrap_or_default(),
        annotations: found.metadata.annotations.unwrap_or_default(),
        is_populated,
    }
}

async fn follow_profile(client: Client, changed: watch::Sender<TlsMinimum>) -> Infallible {
    let configs: Api<CdiConfig> = Api::all(client);
    loop {
        let mut versions =
            std::pin::pin!(watch_object(configs.clone(), CDI_CONFIG).default_backoff());
        while let Some(version) = versions.next().await {
            match version {
                Ok(config) => {
                    let profile = config.and_then(|config| config.spec.tls_security_profile);
                    let wanted = tls_minimum(profile.as_ref());
                    changed.send_if_modified(|tls_minimum| {
                        let is_other = *tls_minimum != wanted;
                        *tls_minimum = wanted;
                        is_other
                    });
                }
                Err(error) => tracing::debug!("cannot watch the CDIConfig: {error}"),
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The TLS minimum of a profile. For the profile Old it is TLS 1.2, the oldest version that
/// rustls supports.
fn tls_minimum(profile: Option<&TlsSecurityProfile>) -> TlsMinimum {
    let ResolvedTlsProfile { min_version, ciphers } = resolve_tls_profile(profile);
    TlsMinimum::parse(min_version.as_str(), &ciphers.join(",")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_resolves_to_a_tls_minimum() {
        let ciphers = "ECDHE-RSA-AES128-GCM-SHA256,TLS_AES_128_GCM_SHA256";
        for (version, expected) in
            [("VersionTLS13", "VersionTLS13"), ("VersionTLS10", "VersionTLS12")]
        {
            let json = format!(
                r#"{{"type":"Custom","custom":{{"minTLSVersion":"{version}",
                    "ciphers":["ECDHE-RSA-AES128-GCM-SHA256","TLS_AES_128_GCM_SHA256"]}}}}"#
            );
            let profile: TlsSecurityProfile = serde_json::from_str(&json).unwrap();
            assert_eq!(tls_minimum(Some(&profile)), TlsMinimum::parse(expected, ciphers).unwrap());
        }
    }

    #[test]
    fn pvc_fields_are_read() {
        let json = r#"{"metadata":{"name":"d","resourceVersion":"7","annotations":{"a":"b"}},
            "spec":{"dataSourceRef":{"apiGroup":"cdi.kubevirt.io","kind":"VolumeUploadSource","name":"s"}}}"#;
        let claim = read("ns", "d", serde_json::from_str(json).unwrap());
        assert_eq!((&*claim.namespace, &*claim.name, &*claim.version), ("ns", "d", "7"));
        assert_eq!(claim.annotations["a"], "b");
        assert!(claim.is_populated);
        for other in ["VolumeImportSource", "PersistentVolumeClaim"] {
            let json = json.replace("VolumeUploadSource", other);
            assert!(!read("ns", "d", serde_json::from_str(&json).unwrap()).is_populated);
        }
        assert!(!read("ns", "d", PersistentVolumeClaim::default()).is_populated);
    }
}
