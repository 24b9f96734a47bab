//! Settings that change while this program runs: watched, and applied to the next connection.

use std::sync::Arc;

use api::v1beta1::{CdiConfig, tls_floor};
use auth::{Floor, ReloadingIdentity};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::app::Settings;
use crate::cluster::{AUTHENTICATION, Cluster};
use crate::error::Error;
use crate::front_proxy::FrontProxy;

/// The settings as they are, and what keeps them so.
pub struct Live {
    cluster: Cluster,
    identity: Arc<ReloadingIdentity>,
    settings: watch::Sender<Settings>,
    tls: watch::Sender<Arc<ServerConfig>>,
}

impl Live {
    /// Reads them all once.
    ///
    /// # Errors
    /// When the cluster does not answer, or its certificates cannot be used.
    pub async fn read(cluster: Cluster, identity: Arc<ReloadingIdentity>) -> Result<Self, Error> {
        let front_proxy = FrontProxy::read(cluster.authentication().await?.as_ref());
        let config = cluster.config().await?.map(Arc::new);
        let settings = Settings { front_proxy: Arc::new(front_proxy), config };
        let tls = watch::Sender::new(Arc::new(serving(&identity, &settings)?));
        Ok(Self { cluster, identity, settings: watch::Sender::new(settings), tls })
    }

    /// The settings, now and later.
    pub fn settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    /// What the next connection is served with.
    pub fn tls(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.tls.subscribe()
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
                        self.change(|settings| settings.front_proxy = proxy);
                    }
                    Err(error) => tracing::warn!("cannot watch the ConfigMap {namespace}/{name}: {error}"),
                },
                Some(found) = configs.next() => match found {
                    Ok(config) => self.change(|settings| settings.config = config.map(Arc::new)),
                    Err(error) => tracing::warn!("cannot watch the CDIConfig: {error}"),
                },
                else => return,
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.borrow().clone();
        change(&mut settings);
        match serving(&self.identity, &settings) {
            Ok(config) => {
                self.tls.send_replace(Arc::new(config));
            }
            Err(error) => {
                tracing::warn!("the settings of TLS stay as they were: {}", runtime::chain(&error))
            }
        }
        self.settings.send_replace(settings);
    }
}

fn serving(identity: &Arc<ReloadingIdentity>, settings: &Settings) -> Result<ServerConfig, Error> {
    let profile =
        settings.config.as_ref().and_then(|config| config.spec.tls_security_profile.as_ref());
    let floor = tls_floor(profile);
    let floor =
        Floor::parse(floor.min_version.as_str(), &floor.ciphers.join(",")).unwrap_or_default();
    let clients = &settings.front_proxy.authority;
    Ok(auth::serving(Arc::clone(identity), clients, &floor, &["h2", "http/1.1"])?)
}
