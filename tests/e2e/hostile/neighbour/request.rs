//! Requests that anyone can send to the programs of the installation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A request that takes longer is aborted.
const PATIENCE: Duration = Duration::from_secs(30);
/// The rest of a response is not read.
const ANSWER_MAX: u64 = 1 << 20;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Differs from call to call and from pod to pod.
fn unique() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{}", now.as_nanos(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    head: &str,
    body: &[u8],
) -> Result<()> {
    let exchange = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        // A server that closes without a TLS close_notify has responded as well.
        let _ = stream.take(ANSWER_MAX).read_to_end(&mut answer).await;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 "), "no response");
        Ok(())
    };
    timeout(PATIENCE, exchange).await.context("no response in time")?
}

async fn post(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    more: &str,
    body: &[u8],
) -> Result<()> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n"
    );
    exchange(stream, &head, body).await
}

/// Sends an admission review of a PVC whose storage class does not exist. `padding`: so many more bytes.
pub async fn webhook(stream: impl AsyncRead + AsyncWrite + Unpin, padding: usize) -> Result<()> {
    let group = json!({ "group": "", "version": "v1", "kind": "PersistentVolumeClaim" });
    let resource = json!({ "group": "", "version": "v1", "resource": "persistentvolumeclaims" });
    let name = unique();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": name, "kind": group, "resource": resource, "namespace": "default",
            "name": "disk", "operation": "CREATE", "userInfo": { "username": "unprivileged" },
            "object": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": "disk", "namespace": "default",
                    "labels": { "cdi.kubevirt.io/applyStorageProfile": "true" },
                    "annotations": { "padding": "x".repeat(padding) },
                },
                "spec": {
                    "storageClassName": format!("none-{name}"),
                    "resources": { "requests": { "storage": "1Gi" } },
                },
            },
        },
    });
    post(stream, "/pvc-mutate", "", review.to_string().as_bytes()).await
}

/// Asks for metrics with a token that each time is another one.
pub async fn metrics(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    let head = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
        unique()
    );
    exchange(stream, &head, b"").await
}

/// Uploads a few bytes with a token that is none.
pub async fn upload(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    let more = format!("Authorization: Bearer {}\r\n", unique());
    post(stream, "/v1beta1/upload", &more, &[0; 4096]).await
}
