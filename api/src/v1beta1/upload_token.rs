//! UploadTokenRequest: the right to upload to a claim. Served by the aggregated API, so it has no CRD.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Asks for a token, and is answered with one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadTokenRequest {
    /// `upload.cdi.kubevirt.io/v1beta1`.
    #[serde(default)]
    pub api_version: String,
    /// `UploadTokenRequest`.
    #[serde(default)]
    pub kind: String,
    /// Whatever the client likes.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(default)]
    pub spec: UploadTokenRequestSpec,
    /// The answer.
    #[serde(default)]
    pub status: UploadTokenRequestStatus,
}

/// Which claim is to be uploaded to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadTokenRequestSpec {
    /// Name of the claim, in the namespace of the request. It need not exist.
    #[serde(default)]
    pub pvc_name: String,
}

/// The token.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadTokenRequestStatus {
    /// To be sent as `Authorization: Bearer`. Opaque to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Without the token, which is a secret.
impl std::fmt::Debug for UploadTokenRequestStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        formatter.debug_struct("UploadTokenRequestStatus").field("token", &token).finish()
    }
}
