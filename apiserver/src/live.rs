//! Settings that change while this program runs: watched, and applied to the next connection.

use std::sync::Arc;
use std::time::Duration;

use api::v1beta1::{CdiConfig, tls_floor};
use auth::Floor;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::app::Settings;
use crate::cluster::{AUTHENTICATION, Cluster};
use crate::error::Error;
use crate::front_proxy::FrontProxy;
use crate::webhook_clients::WebhookClientFile;

/// The settings as they are, and what keeps them so.
pub struct Live {
    cluster: Cluster,
    /// The file, and how often it is read.
    webhook_clients: Option<(WebhookClientFile, Duration)>,
    settings: watch::Sender<Settings>,
}

impl Live {
    /// Reads them all once.
    ///
    /// # Errors
    /// When the cluster does not answer, or the file of webhook clients cannot be used.
    pub async fn read(
        cluster: Cluster,
        webhook_clients: Option<(WebhookClientFile, Duration)>,
    ) -> Result<Self, Error> {
        let front_proxy = FrontProxy::read(cluster.authentication().await?.as_ref());
        let config = cluster.config().await?.map(Arc::new);
        let clients = match &webhook_clients {
            Some((file, _)) => Some(file.read().await?),
            None => None,
        };
        let front_proxy = Arc::new(front_proxy);
        let settings = Settings { front_proxy, config, webhook_clients: clients };
        Ok(Self { cluster, webhook_clients, settings: watch::Sender::new(settings) })
    }

    /// The settings, now and later.
    pub fn settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    /// Follows the settings for as long as it is polled.
    pub async fn follow(self) {
        tokio::join!(self.follow_cluster(), self.follow_webhook_clients());
    }

    /// Reads the CA of webhook clients again, as a mounted Secret changes when it is renewed. What cannot be read leaves the
    /// one before in force.
    async fn follow_webhook_clients(&self) {
        let Some((file, every)) = &self.webhook_clients else { return };
        let mut ticks = tokio::time::interval(*every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failure = None;
        loop {
            ticks.tick().await;
            let clients = match file.read().await {
                Ok(clients) => clients,
                Err(error) => {
                    let told = Some(runtime::chain(&error));
                    if told != failure {
                        tracing::warn!("{}", told.as_deref().unwrap_or_default());
                    }
                    failure = told;
                    continue;
                }
            };
            failure = None;
            self.settings.send_if_modified(|settings| {
                let before = settings.webhook_clients.as_ref().map(|clients| &clients.authority);
                let is_new = before != Some(&clients.authority);
                if is_new {
                    settings.webhook_clients = Some(clients);
                }
                is_new
            });
        }
    }

    async fn follow_cluster(&self) {
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

/// The CAs whose certificates clients may show, as PEM.
pub fn client_authorities(settings: &Settings) -> String {
    let Settings { front_proxy, webhook_clients, .. } = settings;
    match webhook_clients {
        Some(clients) => format!("{}\n{}", front_proxy.authority, clients.authority),
        None => front_proxy.authority.clone(),
    }
}

/// The least of TLS.
pub fn floor(settings: &Settings) -> Floor {
    let profile =
        settings.config.as_ref().and_then(|config| config.spec.tls_security_profile.as_ref());
    let floor = tls_floor(profile);
    Floor::parse(floor.min_version.as_str(), &floor.ciphers.join(",")).unwrap_or_default()
}
