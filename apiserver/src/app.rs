//! What all requests share.

use std::sync::Arc;

use api::v1beta1::CdiConfig;
use auth::token::{SigningKey, VerifyingKey};
use tokio::sync::watch;

use crate::body::Room;
use crate::call_limits::CallLimits;
use crate::cluster::Cluster;
use crate::front_proxy::FrontProxy;
use crate::webhook_clients::WebhookClients;

/// What may change in the cluster while this program runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// How users are vouched for.
    pub front_proxy: Arc<FrontProxy>,
    /// The CDIConfig.
    pub config: Option<Arc<CdiConfig>>,
    /// The only clients that may call webhooks, if the administrator has said which.
    pub webhook_clients: Option<WebhookClients>,
}

/// What all requests share.
pub struct App {
    /// For looking things up.
    pub cluster: Cluster,
    /// For tokens.
    pub key: SigningKey,
    /// For what the controller has signed.
    pub verifying_key: Option<VerifyingKey>,
    /// As they are now.
    pub settings: watch::Receiver<Settings>,
    /// For bodies of requests for upload tokens.
    pub room: Room,
    /// For webhook calls.
    pub limits: CallLimits,
}

impl App {
    /// The features that are turned on.
    pub fn gates(&self) -> Vec<String> {
        let settings = self.settings.borrow();
        let config = settings.config.as_ref();
        config.and_then(|config| config.spec.feature_gates.clone()).unwrap_or_default()
    }

    /// Whether claims with the label are completed.
    pub fn renders_claims(&self) -> bool {
        let settings = self.settings.borrow();
        let config = settings.config.as_ref();
        config.and_then(|config| config.spec.webhook_pvc_rendering.as_deref()) != Some("Disabled")
    }

    /// The CDIConfig.
    pub fn config(&self) -> Option<Arc<CdiConfig>> {
        self.settings.borrow().config.clone()
    }

    /// How users are vouched for.
    pub fn front_proxy(&self) -> Arc<FrontProxy> {
        Arc::clone(&self.settings.borrow().front_proxy)
    }
}
