//! Uploads as a client sends them.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use api::v1beta1::DataVolume;
use e2e::{PATIENCE, PAUSE, Test, phase, upload_token};

const PROXY: &str = "cdi-uploadproxy";

/// Uploads a disk to a DataVolume that waits for one, again as long as the proxy responds that it cannot.
pub async fn upload(test: &Test, name: &str, bytes: &[u8]) -> Result<()> {
    let is_ready = |volume: &DataVolume| phase(volume) == "UploadReady";
    test.wait(name, "ready for an upload", is_ready).await?;
    let token = upload_token(test, name).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("disk.img");
    std::fs::write(&file, bytes)?;
    let begin = Instant::now();
    loop {
        let status = post(test, &token, &file).await?;
        match status.as_str() {
            "200" => return Ok(()),
            _ if begin.elapsed() > PATIENCE => bail!("the upload to {name} fails: {status}"),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn post(test: &Test, token: &str, file: &std::path::Path) -> Result<String> {
    let url = format!("https://{}/v1beta1/upload", test.service_address(PROXY).await?);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--request", "POST", "--max-time", "60"]);
    curl.args(["--output", "/dev/null", "--write-out", "%{http_code}"]);
    curl.args(["--header", &format!("Authorization: Bearer {token}")]);
    curl.arg("--data-binary").arg(format!("@{}", file.display())).arg(url);
    let output = curl.output().context("cannot start curl")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
