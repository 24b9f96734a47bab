//! Uploads as a client sends them, who tries again.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};

use crate::test::pause_since;
use crate::{Test, phase, upload_token};

const PROXY: &str = "cdi-uploadproxy";
/// Longer than the back-off of an upload server that was killed several times.
const UPLOAD_MAX: Duration = Duration::from_secs(900);

impl Test {
    /// Waits until a DataVolume expects an upload.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn upload_ready(&self, name: &str) -> Result<()> {
        let is_ready = |volume: &DataVolume| phase(volume) == "UploadReady";
        self.wait(name, "ready for an upload", is_ready).await.map(|_| ())
    }

    /// The upload server of the test's only upload.
    ///
    /// # Errors
    /// When there is none.
    pub async fn upload_server(&self) -> Result<Pod> {
        let servers = ListParams::default().labels("cdi.kubevirt.io=cdi-upload-server");
        let pods = self.all::<Pod>().list(&servers).await?.items;
        pods.into_iter().next().context("an upload has a server")
    }

    /// Deletes a pod without a grace period, as after the loss of its node.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn lose_pod(&self, name: &str) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.all::<Pod>().delete(name, &now).await?;
        Ok(())
    }

    /// Uploads a disk to a DataVolume by `curl`, again until it was accepted.
    ///
    /// # Errors
    /// The last error, if it is not accepted in time.
    pub async fn upload(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("disk.img");
        std::fs::write(&file, bytes)?;
        let begin = Instant::now();
        while let Err(error) = self.upload_once(name, &file).await {
            if begin.elapsed() > UPLOAD_MAX {
                return Err(error.context(format!("the upload to {name} fails")));
            }
            tokio::time::sleep(pause_since(begin)).await;
        }
        Ok(())
    }

    /// An upload whose response was lost has succeeded too.
    async fn upload_once(&self, name: &str, file: &Path) -> Result<()> {
        let volume = self.all::<DataVolume>().get(name).await?;
        if phase(&volume) == "Succeeded" {
            return Ok(());
        }
        ensure!(phase(&volume) == "UploadReady", "the phase is {}", phase(&volume));
        let token = upload_token(self, name).await?;
        let url = format!("https://{}/v1beta1/upload", self.service_address(PROXY).await?);
        let file = file.to_owned();
        let status = tokio::task::spawn_blocking(move || post(&url, &token, &file)).await??;
        ensure!(status == "200", "the upload proxy responds {status}");
        Ok(())
    }
}

/// The status of the response, `000` without one.
fn post(url: &str, token: &str, file: &Path) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--request", "POST", "--max-time", "60"]);
    curl.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
    curl.args(["--header", &format!("Authorization: Bearer {token}")]);
    curl.arg("--data-binary").arg(format!("@{}", file.display())).arg(url);
    let output = curl.output().context("cannot start curl")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
