//! DataVolumes of every source, in flight while the installation changes below them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{HOST, PAUSE, Test, files_of_disk, phase, upload_token, volume};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Fault, FaultServer, Image, MIB, QemuImg, pattern};

use crate::installation::PATIENCE;

/// DataVolumes of each source: 50 with the source of the clones.
const BLANK: usize = 16;
const RAW: usize = 12;
const QCOW2: usize = 8;
const SNAPSHOT_CLONES: usize = 4;
const COPIES: usize = 4;
const REGISTRY_IMAGES: usize = 3;
const UPLOADS: usize = 2;

/// Bytes per second of the slow servers: an import is in flight for about half a minute.
const IMPORT_RATE: u64 = MIB / 4;
/// The same of an upload, in the words of curl.
const UPLOAD_RATE: &str = "256k";
/// A proxy that is replaced ends its connections, and the client repeats the upload.
const UPLOAD_RETRIES: &str = "60";

const DISK: u64 = 8 * MIB;

fn disk() -> Vec<u8> {
    pattern(DISK)
}

/// How many pods work for an import.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    One,
    /// Upstream's first pod of an image only finds out that the next one needs scratch space. What it reads meanwhile depends on
    /// how soon it does.
    UpstreamRetries,
    MayBeKilled,
}

/// What is in flight.
pub struct Load {
    names: Vec<String>,
    /// Those that hold the disk at the end.
    filled: Vec<String>,
    uploads: Vec<(String, Child)>,
    /// UIDs of the importer pods, by name.
    workers: BTreeMap<String, BTreeSet<String>>,
    raw: Arc<FaultServer>,
    // They serve and hold files until the end.
    _servers: [FaultServer; 2],
    _files: TempDir,
}

impl Load {
    /// Creates the DataVolumes, and waits until imports and uploads are in flight.
    pub async fn start(test: &Test) -> Result<Self> {
        let qemu_img = QemuImg::require().context("qemu-img is missing")?;
        let qcow2 =
            qemu_img.convert(Image::from_bytes(&disk()).path(), "raw", "qcow2", &["-c"]).bytes();
        let slow = |bytes: &[u8]| {
            FaultServer::in_memory_on(HOST, bytes).always(Fault::SlowDown(IMPORT_RATE))
        };
        let fast = FaultServer::in_memory_on(HOST, &disk());
        let (raw, qcow2) = (Arc::new(slow(&disk())), slow(&qcow2));
        let web = |server: &FaultServer| json!({ "http": { "url": server.url_of("/disk") } });
        let registry = json!({
            "registry": { "url": test.push("load", "1", files_of_disk(disk()))?.url() },
        });
        let clone = json!({ "pvc": { "namespace": test.namespace(), "name": "source" } });
        let mut load = Self {
            names: Vec::new(),
            filled: Vec::new(),
            uploads: Vec::new(),
            workers: BTreeMap::new(),
            _files: tempfile::tempdir()?,
            raw,
            _servers: [fast, qcow2],
        };
        let [fast, qcow2] = &load._servers;
        let rows = [
            ("upload", UPLOADS, "csi", json!({ "upload": {} })),
            ("raw", RAW, "csi", web(&load.raw)),
            ("qcow2", QCOW2, "csi", web(qcow2)),
            ("blank", BLANK, "csi", json!({ "blank": {} })),
            ("registry", REGISTRY_IMAGES, "csi", registry),
            ("clone", SNAPSHOT_CLONES, "csi", clone.clone()),
            // Of another driver: the volume is copied.
            ("copy", COPIES, "plain", clone),
        ];
        let source = web(fast);
        load.create(test, "source", "csi", source).await?;
        has_succeeded(test, "source").await?;
        for (kind, count, class, source) in rows {
            for number in 0..count {
                load.create(test, &format!("{kind}-{number}"), class, source.clone()).await?;
            }
        }
        load.start_uploads(test).await?;
        let begin = Instant::now();
        while load.record_workers(test).await? == 0 {
            ensure!(begin.elapsed() < PATIENCE, "no importer pod runs");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(load)
    }

    async fn create(&mut self, test: &Test, name: &str, class: &str, source: Value) -> Result<()> {
        let is_blank = source.get("blank").is_some();
        test.apply(volume(name, class, "Block", source)).await?;
        self.names.push(name.to_owned());
        if !is_blank {
            self.filled.push(name.to_owned());
        }
        Ok(())
    }

    async fn start_uploads(&mut self, test: &Test) -> Result<()> {
        let file = self._files.path().join("disk.img");
        std::fs::write(&file, disk())?;
        let proxy = SocketAddr::new(test.service_address("cdi-uploadproxy").await?, 443);
        for number in 0..UPLOADS {
            let name = format!("upload-{number}");
            test.upload_ready(&name).await?;
            let token = upload_token(test, &name).await?;
            let mut curl = Command::new("curl");
            curl.args([
                "--silent",
                "--show-error",
                "--fail",
                "--insecure",
                "--limit-rate",
                UPLOAD_RATE,
            ]);
            curl.args(["--retry", UPLOAD_RETRIES, "--retry-all-errors", "--retry-delay", "1"]);
            curl.args(["--max-time", "280", "--request", "POST"]);
            curl.args(["--header", &format!("Authorization: Bearer {token}")]);
            curl.arg("--data-binary").arg(format!("@{}", file.display()));
            curl.arg(format!("https://{proxy}/v1beta1/upload"));
            let log = File::create(self._files.path().join(format!("{name}.log")))?;
            let child = curl.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
            self.uploads.push((name, child.context("cannot start curl")?));
        }
        Ok(())
    }

    /// Returns how many importer pods there are.
    async fn record_workers(&mut self, test: &Test) -> Result<usize> {
        let importers = ListParams::default().labels("cdi.kubevirt.io=importer");
        let pods = test.all::<Pod>().list(&importers).await?.items;
        for pod in &pods {
            let uids = self.workers.entry(pod.name_any()).or_default();
            uids.insert(pod.uid().unwrap_or_default());
        }
        Ok(pods.len())
    }

    /// Waits until all DataVolumes have succeeded with the right bytes, and none was imported twice.
    pub async fn finish(self, test: &Test, workers: Workers) -> Result<()> {
        let raw = Arc::clone(&self.raw);
        let pods = self.succeed(test, workers).await?;
        if workers == Workers::MayBeKilled {
            return Ok(());
        }
        let (half_disks, pods_max) =
            if workers == Workers::One { (RAW * 2 + 1, 1) } else { (RAW * 3, 2) };
        let (sent, limit) = (raw.body_bytes_sent(), half_disks as u64 * DISK / 2);
        ensure!(sent <= limit, "{sent} bytes were sent for {RAW} disks of {DISK} bytes");
        for (pod, uids) in &pods {
            ensure!(uids.len() <= pods_max, "{pod} was created {} times", uids.len());
        }
        Ok(())
    }

    async fn succeed(
        mut self,
        test: &Test,
        workers: Workers,
    ) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let begin = Instant::now();
        loop {
            self.record_workers(test).await?;
            let volumes = test.all::<DataVolume>().list(&ListParams::default()).await?.items;
            let waiting: Vec<_> =
                volumes.iter().filter(|volume| phase(volume) != "Succeeded").collect();
            if waiting.is_empty() {
                break;
            }
            if begin.elapsed() > PATIENCE {
                let states = waiting
                    .iter()
                    .map(|volume| format!("{}: {}", volume.name_any(), phase(volume)));
                anyhow::bail!("not finished: {}", states.collect::<Vec<_>>().join(", "));
            }
            tokio::time::sleep(5 * PAUSE).await;
        }
        for (name, child) in &mut self.uploads {
            let status = child.wait()?;
            let log = std::fs::read_to_string(self._files.path().join(format!("{name}.log")))?;
            ensure!(status.success(), "the upload of {name} failed: {log}");
        }
        for name in &self.names {
            match workers {
                Workers::One | Workers::MayBeKilled => test.succeeded(name).await.map(drop)?,
                Workers::UpstreamRetries => has_succeeded(test, name).await?,
            }
        }
        for name in
            ["source", "upload-0", "raw-0", "raw-11", "qcow2-7", "registry-2", "clone-3", "copy-3"]
        {
            ensure!(self.filled.iter().any(|filled| filled == name), "no {name}");
            test.holds(name, &disk()).await.with_context(|| name.to_owned())?;
        }
        Ok(std::mem::take(&mut self.workers))
    }
}

/// As [`Test::succeeded`], without the conditions: upstream CDI updates the condition Bound after the phase.
async fn has_succeeded(test: &Test, name: &str) -> Result<()> {
    let is_done = |volume: &DataVolume| phase(volume) == "Succeeded";
    test.wait(name, "Succeeded", is_done).await.map(drop)
}

impl Drop for Load {
    fn drop(&mut self) {
        for (_, child) in &mut self.uploads {
            let _ = child.kill(); // it may have exited
            let _ = child.wait();
        }
    }
}
