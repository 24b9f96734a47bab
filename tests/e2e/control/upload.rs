//! Uploads: by `virtctl`, as people do it, and by hand where `virtctl` would not go.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use api::v1beta1::DataVolume;
use cluster::{Tools, VIRTCTL};
use e2e::{Test, phase, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Image, QemuImg};

use crate::world::{SIZE, apply_all, disk, name, small};

const PROXY: &str = "cdi-uploadproxy";

/// Files to upload, and who does it.
struct Uploader<'a> {
    test: &'a Test,
    folder: TempDir,
    url: String,
}

impl<'a> Uploader<'a> {
    async fn new(test: &'a Test) -> Result<Self> {
        let url = format!("https://{}", test.service_address(PROXY).await?);
        Ok(Self { test, folder: tempfile::tempdir()?, url })
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path)
    }

    fn virtctl(&self, words: &[&str]) -> Result<Output> {
        let tools = Tools::ready(&[VIRTCTL])?;
        let output = Command::new(tools.path("virtctl")?)
            .arg("image-upload")
            .args(words)
            .arg(format!("--uploadproxy-url={}", self.url))
            .arg(format!("--namespace={}", self.test.namespace()))
            .arg("--insecure")
            .env("KUBECONFIG", self.test.state().kubeconfig())
            .output();
        output.context("cannot start virtctl")
    }

    /// A request to the proxy, by curl: the status, and what it says.
    fn post(&self, path: &str, token: &str, file: &std::path::Path) -> Result<(u16, String)> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--insecure", "--request", "POST"]);
        curl.args(["--write-out", "\n%{http_code}", "--max-time", "60"]);
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        curl.arg("--data-binary").arg(format!("@{}", file.display()));
        let output = curl.arg(format!("{}{path}", self.url)).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').context("curl says how it went")?;
        Ok((status.parse()?, body.to_owned()))
    }
}

/// The right to upload to a claim, as the aggregated API gives it.
async fn token(test: &Test, claim: &str) -> Result<String> {
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

fn expect(output: &Output, what: &str) -> Result<()> {
    if !output.status.success() {
        let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        bail!("virtctl cannot upload {what}: {}{}", said[0], said[1]);
    }
    Ok(())
}

fn qcow2(bytes: &[u8]) -> Result<Vec<u8>> {
    let qemu_img = QemuImg::require().context("qemu-img is missing")?;
    Ok(qemu_img.convert(Image::of(bytes).path(), "raw", "qcow2", &["-c"]).bytes())
}

#[test]
fn virtctl_uploads_to_a_data_volume_that_it_makes() {
    run_installed("virtctl", async |test| {
        let uploader = Uploader::new(&test).await?;
        let raw = uploader.file("disk.img", &disk())?.display().to_string();
        let packed = uploader.file("disk.qcow2", &qcow2(&disk())?)?.display().to_string();
        for (name, image, mode) in [
            ("raw", &raw, "filesystem"),
            ("packed", &packed, "block"),
            ("file", &packed, "filesystem"),
        ] {
            let words = [
                "dv",
                name,
                &format!("--size={SIZE}"),
                &format!("--image-path={image}"),
                "--storage-class=csi",
                &format!("--volume-mode={mode}"),
            ];
            expect(&uploader.virtctl(&words)?, name)?;
            test.succeeded(name).await?;
            test.told(name, "UploadSucceeded").await?;
            test.holds(name, &disk()).await?;
        }
        test.only_these_are_left(&["raw", "packed", "file"]).await
    });
}

#[test]
fn virtctl_uploads_to_a_claim_and_to_the_examples() {
    run_installed("virtctl-claim", async |test| {
        let uploader = Uploader::new(&test).await?;
        let image = uploader.file("disk.img", &disk())?.display().to_string();
        let image = format!("--image-path={image}");
        let size = format!("--size={SIZE}");
        let words = ["pvc", "claim", &size, &image, "--storage-class=csi"];
        expect(&uploader.virtctl(&words)?, "claim")?;
        test.holds("claim", &disk()).await?;
        for example in ["dv-upload", "dv-upload-block"] {
            let objects = small(example)?;
            let volume = name(objects.last().context("an example has objects")?);
            apply_all(&test, objects).await?;
            let ready = |volume: &DataVolume| phase(volume) == "UploadReady";
            test.wait(&volume, "ready", ready).await?;
            expect(&uploader.virtctl(&["dv", &volume, "--no-create", &image])?, example)?;
            test.succeeded(&volume).await?;
            test.holds(&volume, &disk()).await?;
        }
        test.only_these_are_left(&["claim", "uploaded-disk", "uploaded-block"]).await
    });
}

#[test]
fn a_claim_that_names_a_source_of_uploads_is_uploaded_to() {
    run_installed("populator-upload", async |test| {
        let uploader = Uploader::new(&test).await?;
        let image = uploader.file("disk.img", &disk())?;
        apply_all(&test, small("populator-upload")?).await?;
        let claim = "populated-by-upload";
        let token = token(&test, claim).await?;
        // The proxy waits ten seconds for the server; what makes it may take longer here.
        let mut answer = (0, String::new());
        for _ in 0..6 {
            answer = uploader.post("/v1beta1/upload", &token, &image)?;
            if answer.0 != 503 {
                break;
            }
        }
        ensure!(answer.0 == 200, "{answer:?}");
        test.wait::<PersistentVolumeClaim>(claim, "bound", e2e::is_bound).await?;
        test.holds(claim, &disk()).await?;
        let again = uploader.post("/v1beta1/upload", &token, &image)?;
        ensure!(again.0 == 503 && again.1.contains("already finished uploading"), "{again:?}");
        test.only_these_are_left(&[claim]).await
    });
}

#[test]
fn a_token_is_good_for_one_claim_and_a_bad_image_is_told_of() {
    run_installed("upload-refused", async |test| {
        let uploader = Uploader::new(&test).await?;
        apply_all(&test, small("dv-upload")?).await?;
        let ready = |volume: &DataVolume| phase(volume) == "UploadReady";
        test.wait("uploaded-disk", "ready", ready).await?;
        let image = uploader.file("disk.img", &disk())?;
        let foreign = token(&test, "another").await?;
        let answer = uploader.post("/v1beta1/upload", &foreign, &image)?;
        ensure!(answer.0 == 503 && answer.1.contains("doesn"), "{answer:?}");
        let answer = uploader.post("/v1beta1/upload", "no-token", &image)?;
        ensure!(answer.0 == 401, "{answer:?}");
        let mut large = qcow2(&disk())?;
        large[24..32].copy_from_slice(&(1_u64 << 40).to_be_bytes()); // its virtual size
        let large = uploader.file("large.qcow2", &large)?;
        let token = token(&test, "uploaded-disk").await?;
        let answer = uploader.post("/v1beta1/upload", &token, &large)?;
        ensure!(answer.0 == 400 && answer.1.contains("Saving stream failed"), "{answer:?}");
        // The server is there for the next one.
        let answer = uploader.post("/v1beta1/upload", &token, &image)?;
        ensure!(answer.0 == 200, "{answer:?}");
        test.succeeded("uploaded-disk").await?;
        test.holds("uploaded-disk", &disk()).await
    });
}
