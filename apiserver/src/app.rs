//! State that all requests share.

use std::sync::Arc;

use api::v1beta1::CdiConfig;
use auth::token::{SigningKey, VerifyingKey};
use tokio::sync::watch;

use crate::api_client::ApiClient;
use crate::body_memory::BodyMemory;
use crate::call_limits::CallLimits;
use crate::front_proxy::FrontProxy;
use crate::webhook_clients::WebhookClients;

/// Settings of the cluster, which change while the program runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub front_proxy: Arc<FrontProxy>,
    pub config: Option<Arc<CdiConfig>>,
    /// The only clients that may call webhooks. `None`: every client may.
    pub webhook_clients: Option<WebhookClients>,
}

pub struct App {
    pub cluster: ApiClient,
    /// Signs tokens.
    pub key: SigningKey,
    /// Verifies tokens of the controller.
    pub verifying_key: Option<VerifyingKey>,
    pub settings: watch::Receiver<Settings>,
    /// For request bodies of the upload-token API.
    pub body_memory: BodyMemory,
    pub limits: CallLimits,
}

impl App {
    /// The enabled feature gates.
    pub fn gates(&self) -> Vec<String> {
        let settings = self.settings.borrow();
        let config = settings.config.as_ref();
        config.and_then(|config| config.spec.feature_gates.clone()).unwrap_or_default()
    }

    /// Whether the webhook completes PVCs with the label `applyStorageProfile`.
    pub fn renders_claims(&self) -> bool {
        let settings = self.settings.borrow();
        let config = settings.config.as_ref();
        config.and_then(|config| config.spec.webhook_pvc_rendering.as_deref()) != Some("Disabled")
    }

    pub fn config(&self) -> Option<Arc<CdiConfig>> {
        self.settings.borrow().config.clone()
    }

    pub fn front_proxy(&self) -> Arc<FrontProxy> {
        Arc::clone(&self.settings.borrow().front_proxy)
    }
}
