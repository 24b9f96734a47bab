//! Settings that change while this program runs: watched, and applied to the next connection.

use std::sync::Arc;

use api::v1beta1::{CdiConfig, tls_floor};
use auth::Floor;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;

use crate::app::Settings;
use crate::cluster::{AUTHENTICATION, Cluster};
use crate::error::Error;
use crate::front_proxy::FrontProxy;

/// The settings as they are, and what keeps them so.
pub struct Live {
    cluster: Cluster,
    settings: watch::Sender<Settings>,
}

impl Live {
    /// Reads them all once.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn read(cluster: Cluster) -> Result<Self, Error> {
        let front_proxy = FrontProxy::read(cluster.authentication().await?.as_ref());
        let config = cluster.config().await?.map(Arc::new);
        let settings = Settings { front_proxy: Arc::new(front_proxy), config };
        Ok(Self { cluster, settings: watch::Sender::new(settings) })
    }

    /// The settings, now and later.
    pub fn settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    /// Follows the settings for as long as it is polled.
    pub async fn follow(self) {
        let (namespace, name) = AUTHENTICATION;
        let api: Api<ConfigMap> = Api::namespaced(self.cluster.client(), namespace);
        let mut proxies = watcher::watch_object(api, name).default_backoff().boxed();
        let api: Api<CdiConfig> = Api::all(self.cluster.client());
        let mut configs =
            watcher::watch_object(api, api::names::CDI_CONFIG).default_backoff().boxed();
        loop {
            tokio::select! {
                Some(found) = proxies.next() => match found {
                    Ok(config) => {
                        let proxy = Arc::new(FrontProxy::read(config.as_ref()));
                        self.settings.send_modify(|settings| settings.front_proxy = proxy);
                    }
                    Err(error) => tracing::warn!("cannot watch the ConfigMap {namespace}/{name}: {error}"),
                },
                Some(found) = configs.next() => match found {
                    Ok(config) => self.settings.send_modify(|settings| settings.config = config.map(Arc::new)),
                    Err(error) => tracing::warn!("cannot watch the CDIConfig: {error}"),
                },
                else => return,
            }
        }
    }
}

/// The least of TLS.
pub fn floor(settings: &Settings) -> Floor {
    let profile =
        settings.config.as_ref().and_then(|config| config.spec.tls_security_profile.as_ref());
    let floor = tls_floor(profile);
    Floor::parse(floor.min_version.as_str(), &floor.ciphers.join(",")).unwrap_or_default()
}
