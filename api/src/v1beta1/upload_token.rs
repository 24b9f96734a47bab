//! UploadTokenRequest: requests a token to upload to a PVC. Served by the aggregated API, so it has no CRD.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A request for a token, and the response with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadTokenRequest {
    /// `upload.cdi.kubevirt.io/v1beta1`.
    #[serde(default)]
    pub api_version: String,
    /// `UploadTokenRequest`.
    #[serde(default)]
    pub kind: String,
    /// Returned unchanged.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The request.
    #[serde(default)]
    pub spec: UploadTokenRequestSpec,
    /// The response.
    #[serde(default)]
    pub status: UploadTokenRequestStatus,
}

/// The PVC to upload to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadTokenRequestSpec {
    /// Name of the PVC, in the namespace of the request. It need not exist.
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
