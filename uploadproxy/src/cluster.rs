//! What the proxy asks a cluster, and how Kubernetes answers.

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

use crate::claim::Claim;

/// Where upload servers listen.
pub const UPLOAD_SERVER_PORT: u16 = 8443;
/// The kind that makes a claim be filled by way of another one.
const UPLOAD_SOURCE: &str = "VolumeUploadSource";
/// The authorities in a ConfigMap of them.
const BUNDLE_KEY: &str = "ca-bundle.crt";
/// When to look again at what cannot be watched.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Nobody waits longer for a claim.
const WATCH_SECONDS: u32 = 15;

/// What the proxy has to know. Tests have a cluster of their own.
pub trait Cluster: Send + Sync + 'static {
    /// A claim as it is now.
    fn claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Option<Claim>, ClusterError>> + Send;

    /// Returns once `claim` has changed, or may have.
    fn changed(&self, claim: &Claim) -> impl Future<Output = ()> + Send;

    /// Who vouches for upload servers at the moment: PEM.
    fn authorities(&self) -> impl Future<Output = Result<String, ClusterError>> + Send;

    /// The least of TLS that clients have to speak, from now on.
    fn floor(&self) -> watch::Receiver<TlsMinimum>;

    /// The address of a host of the cluster's network.
    fn address(&self, host: &str) -> String {
        format!("{host}:{UPLOAD_SERVER_PORT}")
    }
}

/// Why something cannot be learnt.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub struct ClusterError {
    what: String,
    source: Box<dyn StdError + Send + Sync>,
}

impl ClusterError {
    /// `what` is a verb and its object.
    pub fn new(
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { what: what.into(), source: source.into() }
    }
}

/// The cluster whose API server `client` talks to.
pub struct Kubernetes {
    client: Client,
    /// Of this process.
    namespace: String,
    /// The ConfigMap with the authorities.
    bundle: String,
    floor: watch::Receiver<TlsMinimum>,
}

impl Kubernetes {
    /// With what keeps the settings of TLS up to date for as long as it is polled.
    pub fn new(client: Client, bundle: &str) -> (Self, impl Future<Output = Infallible> + use<>) {
        let (changed, floor) = watch::channel(TlsMinimum::default());
        let following = follow_profile(client.clone(), changed);
        let namespace = client.default_namespace().to_owned();
        (Self { client, namespace, bundle: bundle.to_owned(), floor }, following)
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Waits for the next version of a claim.
    async fn next_version(&self, claim: &Claim) -> kube::Result<()> {
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

impl Cluster for Kubernetes {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Claim>, ClusterError> {
        if !is_namespace_name(namespace) || !is_object_name(name) {
            return Ok(None);
        }
        let found = self.claims(namespace).get_opt(name).await;
        let found = found.map_err(|error| ClusterError::new("look at the claim", error))?;
        Ok(found.map(|found| read(namespace, name, found)))
    }

    /// Where claims may be read and not watched, as in clusters that were set up for an earlier version: a moment later.
    async fn changed(&self, claim: &Claim) {
        if let Err(error) = self.next_version(claim).await {
            tracing::debug!("cannot watch a claim: {error}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn authorities(&self) -> Result<String, ClusterError> {
        let what = || format!("read {BUNDLE_KEY} of the ConfigMap {}", self.bundle);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get(&self.bundle).await.map_err(|error| ClusterError::new(what(), error))?;
        let text = map.data.and_then(|mut data| data.remove(BUNDLE_KEY));
        text.ok_or_else(|| ClusterError::new(what(), "there is no such key"))
    }

    fn floor(&self) -> watch::Receiver<TlsMinimum> {
        self.floor.clone()
    }
}

fn read(namespace: &str, name: &str, found: PersistentVolumeClaim) -> Claim {
    let source = found.spec.and_then(|spec| spec.data_source_ref);
    let is_populated = source.is_some_and(|source| {
        source.kind == UPLOAD_SOURCE && source.api_group.as_deref() == Some(GROUP)
    });
    Claim {
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
                    let wanted = floor(profile.as_ref());
                    changed.send_if_modified(|floor| {
                        let is_other = *floor != wanted;
                        *floor = wanted;
                        is_other
                    });
                }
                Err(error) => tracing::debug!("cannot watch the settings: {error}"),
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The least of TLS that a profile asks for. That for clients of long ago asks for less than anybody here speaks: what is
/// spoken is then TLS 1.2.
fn floor(profile: Option<&TlsSecurityProfile>) -> TlsMinimum {
    let ResolvedTlsProfile { min_version, ciphers } = resolve_tls_profile(profile);
    TlsMinimum::parse(min_version.as_str(), &ciphers.join(",")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_a_floor() {
        let ciphers = "ECDHE-RSA-AES128-GCM-SHA256,TLS_AES_128_GCM_SHA256";
        for (version, expected) in
            [("VersionTLS13", "VersionTLS13"), ("VersionTLS10", "VersionTLS12")]
        {
            let json = format!(
                r#"{{"type":"Custom","custom":{{"minTLSVersion":"{version}",
                    "ciphers":["ECDHE-RSA-AES128-GCM-SHA256","TLS_AES_128_GCM_SHA256"]}}}}"#
            );
            let profile: TlsSecurityProfile = serde_json::from_str(&json).unwrap();
            assert_eq!(floor(Some(&profile)), TlsMinimum::parse(expected, ciphers).unwrap());
        }
    }

    #[test]
    fn a_claim_is_read_as_it_is() {
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
