//! Settings that change while this program runs: watched, and applied to the next connection.

use std::sync::Arc;
use std::time::Duration;

use api::v1beta1::{CdiConfig, resolve_tls_profile};
use auth::TlsMinimum;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::api_client::{AUTHENTICATION, ApiClient};
use crate::app::Settings;
use crate::error::Error;
use crate::front_proxy::FrontProxy;
use crate::webhook_clients::WebhookClientFile;

/// The current settings, and the watches that update them.
pub struct SettingsWatcher {
    cluster: ApiClient,
    /// The file, and how often it is read again.
    webhook_clients: Option<(WebhookClientFile, Duration)>,
    settings: watch::Sender<Settings>,
}

impl SettingsWatcher {
    /// Reads all settings once.
    ///
    /// # Errors
    /// When the API server cannot be reached or refuses, or the file of webhook clients cannot be used.
    pub async fn read(
        cluster: ApiClient,
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

    pub fn settings(&self) -> watch::Receiver<Settings> {
        self.settings.subscribe()
    }

    /// Runs the watches as long as it is polled.
    pub async fn follow(self) {
        tokio::join!(self.follow_cluster(), self.follow_webhook_clients());
    }

    /// Reads the CA of webhook clients again, as the kubelet updates a mounted Secret. If it cannot be used, the
    /// previous one stays in use; each failure is logged once.
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
                    let message = Some(runtime::chain(&error));
                    if message != failure {
                        tracing::warn!("{}", message.as_deref().unwrap_or_default());
                    }
                    failure = message;
                    continue;
                }
            };
            failure = None;
            self.settings.send_if_modified(|settings| {
                let before = settings.webhook_clients.as_ref().map(|clients| &clients.ca);
                let is_new = before != Some(&clients.ca);
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

/// The CAs of client certificates, as PEM.
pub fn client_cas(settings: &Settings) -> String {
    let Settings { front_proxy, webhook_clients, .. } = settings;
    match webhook_clients {
        Some(clients) => format!("{}\n{}", front_proxy.ca, clients.ca),
        None => front_proxy.ca.clone(),
    }
}

pub fn tls_minimum(settings: &Settings) -> TlsMinimum {
    let profile =
        settings.config.as_ref().and_then(|config| config.spec.tls_security_profile.as_ref());
    let tls_minimum = resolve_tls_profile(profile);
    TlsMinimum::parse(tls_minimum.min_version.as_str(), &tls_minimum.ciphers.join(","))
        .unwrap_or_default()
}
