//! Uploads with the real `virtctl`, and with curl for requests that it does not send.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use e2e::{NAMESPACE, Test};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use tempfile::TempDir;
use testkit::{Image, Proxy, QemuImg};

use crate::world::{disk, image_of};

const PROXY: &str = "cdi-uploadproxy";
/// As its certificate has it.
pub const PROXY_HOST: &str = "cdi-uploadproxy.cdi.svc";
/// Its CA.
const BUNDLE: &str = "cdi-uploadproxy-signer-bundle";

/// Files to upload, and who does it.
pub struct Uploader<'a> {
    test: &'a Test,
    folder: TempDir,
    address: SocketAddr,
}

impl<'a> Uploader<'a> {
    pub async fn new(test: &'a Test) -> Result<Self> {
        let address = SocketAddr::new(test.service_address(PROXY).await?, 443);
        Ok(Self { test, folder: tempfile::tempdir()?, address })
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path)
    }

    /// The disk in the format of a file extension, or a tar with it: `disk.qcow2.gz`, `files.tar`.
    pub fn image(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        if !path.exists() {
            std::fs::write(&path, image_of(name)?)?;
        }
        Ok(path)
    }

    /// With words of its own, in the test's namespace.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = self.test.virtctl_command(&[&["image-upload"], words].concat())?;
        command.current_dir(self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// A running virtctl that accepts any certificate.
    pub fn start(&self, words: &[&str]) -> Result<Child> {
        let mut command = self.command(words)?;
        command.arg(format!("--uploadproxy-url=https://{}", self.address)).arg("--insecure");
        command.spawn().context("cannot start virtctl")
    }

    /// The same, to its end.
    pub fn virtctl(&self, words: &[&str]) -> Result<Output> {
        self.start(words)?.wait_with_output().context("cannot wait for virtctl")
    }

    /// A running virtctl that verifies the upload proxy by its name, and connects to it by `proxy`. `authority`: a file
    /// of CAs.
    pub fn verifying(&self, words: &[&str], proxy: &Proxy, authority: &Path) -> Result<Child> {
        let mut command = self.command(words)?;
        command
            .env("HTTPS_PROXY", proxy.url())
            .env("NO_PROXY", "127.0.0.0/8,10.0.0.0/8,localhost")
            .env("SSL_CERT_FILE", authority)
            .env("SSL_CERT_DIR", self.folder.path().join("none"));
        command.spawn().context("cannot start virtctl")
    }

    /// An HTTP proxy that connects clients to the upload proxy by its name.
    pub fn http_proxy(&self) -> Proxy {
        Proxy::start().leading(&format!("{PROXY_HOST}:443"), self.address)
    }

    /// A file with the proxy's CA.
    pub async fn authority(&self) -> Result<PathBuf> {
        let maps = Api::<ConfigMap>::namespaced(self.test.client(), NAMESPACE);
        let data = maps.get(BUNDLE).await?.data.unwrap_or_default();
        let text = data.get("ca-bundle.crt").context("a bundle has authorities")?;
        self.file("proxy.pem", text.as_bytes())
    }

    /// A request to the proxy, by curl: status and body.
    pub fn post(&self, path: &str, token: &str, file: &Path) -> Result<(u16, String)> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--insecure", "--request", "POST"]);
        curl.args(["--write-out", "\n%{http_code}", "--max-time", "60"]);
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        curl.arg("--data-binary").arg(format!("@{}", file.display()));
        let output = curl.arg(format!("https://{}{path}", self.address)).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').context("curl prints the status code")?;
        Ok((status.parse()?, body.to_owned()))
    }
}

/// The complete output of virtctl.
pub fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// That it ended well, having shown all there is to show.
pub fn expect(output: &Output, what: &str) -> Result<()> {
    let text = text_of(output);
    let shown = ["100.00%", "Processing completed successfully", "completed successfully"];
    if !output.status.success() || shown.iter().any(|words| !text.contains(words)) {
        bail!("virtctl cannot upload {what}: {text}");
    }
    Ok(())
}

/// The disk, packed.
pub fn qcow2() -> Result<Vec<u8>> {
    let qemu_img = QemuImg::require().context("qemu-img is missing")?;
    Ok(qemu_img.convert(Image::from_bytes(&disk()).path(), "raw", "qcow2", &["-c"]).bytes())
}
