//! Metrics of the installation, read as Prometheus reads them.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use cluster::{KUBERNETES, Tools};
use e2e::{NAMESPACE, Program, Test, run_installed};

const READER: &str = "cdi-metrics-reader";

/// A token of a service account.
fn token(test: &Test, namespace: &str, account: &str) -> Result<String> {
    let mut kubectl = cluster::kubectl(test.state(), &Tools::ready(&[KUBERNETES])?)?;
    let output = kubectl.args(["create", "token", account, "--namespace", namespace]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The status code of the response, and the page.
async fn page(address: &str, token: Option<&str>) -> Result<(String, String)> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--max-time", "20"]);
    if let Some(token) = token {
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    curl.args(["--write-out", "\n%{http_code}", &format!("https://{address}:8443/metrics")]);
    let output = tokio::task::spawn_blocking(move || curl.output()).await??;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "cannot read metrics at {address}: {error}");
    let text = String::from_utf8(output.stdout)?;
    let (page, status) = text.rsplit_once('\n').context("curl writes the status")?;
    Ok((status.to_owned(), page.to_owned()))
}

#[test]
fn metrics_need_an_authorized_token() {
    run_installed("metrics", async |test| {
        let reader = token(&test, NAMESPACE, READER)?;
        let other = token(&test, test.namespace(), "default")?;
        for (program, metric) in [
            ("cdi-deployment", "kubevirt_cdi_undecodable_objects"),
            ("cdi-operator", "kubevirt_cdi_sandbox"),
        ] {
            let pod = Program::named(&test, program).pod().await?;
            let address = pod.status.and_then(|status| status.pod_ip).context("a pod has an IP")?;
            let (status, text) = page(&address, Some(&reader)).await?;
            ensure!(status == "200" && text.contains(metric), "{program}: {status} {text}");
            for (refused, token, expected) in
                [("no token", None, "401"), ("another account", Some(other.as_str()), "403")]
            {
                let (status, text) = page(&address, token).await?;
                ensure!(
                    status == expected,
                    "{program} responds to {refused} with {status}: {text}"
                );
            }
        }
        Ok(())
    });
}
