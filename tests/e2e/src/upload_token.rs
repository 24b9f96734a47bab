//! Tokens that permit an upload.

use anyhow::{Context, Result};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::Test;

/// A token for an upload to a PVC, from the aggregated API.
///
/// # Errors
/// The request is refused.
pub async fn upload_token(test: &Test, claim: &str) -> Result<String> {
    let request = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
        "metadata": { "name": claim, "namespace": test.namespace() },
        "spec": { "pvcName": claim },
    });
    let all = test.all_of("upload.cdi.kubevirt.io", "v1beta1", "UploadTokenRequest");
    let made = all.create(&PostParams::default(), &serde_json::from_value(request)?).await?;
    let token = made.data.pointer("/status/token").and_then(Value::as_str);
    token.map(str::to_owned).context("an answer has a token")
}
