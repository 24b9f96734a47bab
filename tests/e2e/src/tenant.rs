//! Tenants: service accounts that may edit in one namespace and have no permissions elsewhere.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Client;
use kube::api::PostParams;
use kube::config::AuthInfo;
use serde_json::json;

use crate::Test;
use crate::test::PAUSE;

/// The name of each tenant's service account.
const ACCOUNT: &str = "tenant";
/// Longer than any test takes.
const TOKEN_SECONDS: u32 = 7200;

impl Test {
    /// Another namespace, with a client that is authenticated as a service account with the ClusterRole `edit` in it.
    /// Everything that is done through the returned `Test` is done with the permissions of that account.
    ///
    /// # Errors
    /// When the API server refuses one of the objects.
    pub async fn tenant(&self) -> Result<Self> {
        let mut tenant = self.other_namespace().await?;
        tenant.create::<ServiceAccount>(json!({ "metadata": { "name": ACCOUNT } })).await?;
        let binding = json!({
            "metadata": { "name": ACCOUNT },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit",
            },
            "subjects": [{
                "kind": "ServiceAccount", "name": ACCOUNT, "namespace": tenant.namespace(),
            }],
        });
        tenant.create::<RoleBinding>(binding).await?;
        let request: TokenRequest = serde_json::from_value(json!({
            "metadata": {}, "spec": { "audiences": [], "expirationSeconds": TOKEN_SECONDS },
        }))?;
        let accounts = tenant.all::<ServiceAccount>();
        let made = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
        let token = made.status.and_then(|status| status.token).context("no token was issued")?;
        let mut config = self.config().await?;
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        tenant.use_client(Client::try_from(config)?);
        // The authorizer observes the binding and the aggregated rules some time after they were created.
        let all = tenant.all_of("cdi.kubevirt.io", "v1beta1", "DataImportCron");
        for _ in 0..3000 {
            if all.list(&Default::default()).await.is_ok() {
                return Ok(tenant);
            }
            tokio::time::sleep(PAUSE).await;
        }
        anyhow::bail!("the tenant of {} cannot list DataImportCrons", tenant.namespace())
    }
}
