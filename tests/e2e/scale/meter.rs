//! A process measured from outside.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::Usage;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::unless_there;

/// The port of the controllers' metrics.
pub const PORT: u16 = 18_443;
const READS: &str = "cdi_controller_reads_total ";
const WRITES: &str = "cdi_controller_writes_total ";

/// The service account that may read the metrics.
const READER: &str = "meter";
/// Longer than anything is measured.
const TOKEN_SECONDS: u32 = 86_400;

/// Looks at one process.
pub struct Meter {
    pid: u32,
    /// Of an account that may read its metrics.
    token: String,
}

/// Its usage so far.
pub struct Reading {
    /// Reads of objects that it does not watch.
    pub reads: u64,
    /// Writes to the API server, events not counted.
    pub writes: u64,
    /// Time and memory.
    pub usage: Usage,
}

impl Meter {
    /// For the controllers with this process id, which authorize readers of metrics in the cluster of `client`. Creates
    /// an authorized service account in `namespace`.
    pub async fn for_process(pid: u32, client: &Client, namespace: &str) -> Result<Self> {
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
        let account = serde_json::from_value(json!({ "metadata": { "name": READER } }))?;
        unless_there(accounts.create(&PostParams::default(), &account).await)?;
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        let binding = serde_json::from_value(json!({
            "metadata": { "name": READER },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "system:monitoring", // every cluster has it
            },
            "subjects": [{ "kind": "ServiceAccount", "name": READER, "namespace": namespace }],
        }))?;
        unless_there(bindings.create(&PostParams::default(), &binding).await)?;
        let wanted: TokenRequest = serde_json::from_value(json!({
            "metadata": {}, "spec": { "audiences": [], "expirationSeconds": TOKEN_SECONDS },
        }))?;
        let made = accounts.create_token_request(READER, &PostParams::default(), &wanted).await?;
        let token = made.status.and_then(|status| status.token);
        let token = token.context("a new token is in the response")?;
        Ok(Self { pid, token })
    }

    /// Its usage so far.
    pub fn read(&self) -> Result<Reading> {
        let usage = Usage::read(self.pid)?;
        let page = page(&self.token)?;
        let (reads, writes) = (counter(&page, READS)?, counter(&page, WRITES)?);
        Ok(Reading { reads, writes, usage })
    }
}

/// The page of metrics, which is there a moment after the process.
fn page(token: &str) -> Result<String> {
    let url = format!("https://127.0.0.1:{PORT}/metrics");
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--fail",
        "--insecure",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
    ]);
    curl.arg("--header").arg(format!("Authorization: Bearer {token}"));
    let output = curl.arg(url).output().context("cannot start curl")?;
    ensure!(output.status.success(), "the controller does not respond");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn counter(page: &str, name: &str) -> Result<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.with_context(|| format!("it has no {name}"))?.parse().context("which is a number")
}
