//! Users with fewer permissions than the administrator.

use std::time::Duration;

use anyhow::{Result, bail};
use api::v1beta1::DataVolume;
use kube::{Api, Client};
use serde_json::json;

use crate::Test;

const PAUSE: Duration = Duration::from_millis(100);
const PAUSES: u32 = 3000;

impl Test {
    /// A client of an account that may edit in the test's namespace, and do nothing elsewhere.
    ///
    /// # Errors
    /// When the API server refuses a request, or the account's permissions do not take effect.
    pub async fn editor(&self, name: &str) -> Result<Client> {
        self.grant(name, "edit").await?;
        let mut config = self.config().await?;
        config.auth_info.impersonate = Some(name.to_owned());
        let client = Client::try_from(config)?;
        let all = Api::<DataVolume>::namespaced(client.clone(), self.namespace());
        // The role `edit` aggregates the project's rules a moment after the binding was created.
        for _ in 0..PAUSES {
            if all.list(&Default::default()).await.is_ok() {
                return Ok(client);
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!("{name} may not even list DataVolumes")
    }

    /// Binds a ClusterRole to an account, in the test's namespace.
    ///
    /// # Errors
    /// When the API server refuses the request.
    pub async fn grant(&self, name: &str, role: &str) -> Result<()> {
        let group = "rbac.authorization.k8s.io";
        self.apply(json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": { "generateName": format!("{name}-") },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
        }))
        .await
        .map(|_| ())
    }
}
