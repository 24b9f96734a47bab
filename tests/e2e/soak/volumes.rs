//! The DataVolumes of a round: every source, in several classes and modes.

use anyhow::{Context, Result};
use api::v1beta1::DataVolume;
use e2e::{
    Pushed, Test, annotated, condition_is_false_with, files_of_disk, imported, phase, server,
    volume,
};
use serde_json::{Value, json};
use testkit::{Compressor, Fault, FaultServer, MIB, Qcow2Options, QemuImg, SparseDisk, compress};

/// What clones are made of; all stay for the whole run.
pub const GOLDEN: &str = "golden";
const SNAPSHOT: &str = "golden-snapshot";
const DATA_SOURCE: &str = "golden-source";
/// Bytes of the disk.
const LEN: u64 = 16 * MIB;
/// Bytes of the image that is larger than its volume.
const TOO_LARGE_LEN: u64 = 64 * MIB;
/// Bytes per second of each connection to a server: an import takes seconds, so that something happens to it.
const RATE: u64 = MIB;
const BIND_AT_ONCE: &str = "cdi.kubevirt.io/storage.bind.immediate.requested";

/// Class and mode.
const STORAGE: [(&str, &str); 5] = [
    ("csi", "Block"),
    ("csi", "Filesystem"),
    ("plain", "Block"),
    ("plain", "Filesystem"),
    ("csi-wait", "Block"),
];
const KINDS: [Kind; 12] = [
    Kind::Raw,
    Kind::Gzip,
    Kind::Qcow2,
    Kind::S3,
    Kind::Registry,
    Kind::Archive,
    Kind::Blank,
    Kind::Upload,
    Kind::OfClaim,
    Kind::OfSnapshot,
    Kind::OfDataSource,
    Kind::TooLarge,
];
/// How a DataVolume is refused whose image is larger than its volume.
const TOO_SMALL: &str = "DataVolume too small to contain image";

/// What a DataVolume is filled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Raw,
    Gzip,
    Qcow2,
    S3,
    Registry,
    Archive,
    Blank,
    Upload,
    OfClaim,
    OfSnapshot,
    OfDataSource,
    /// An image that is larger than the volume.
    TooLarge,
}

/// Where the content comes from, for all rounds.
pub struct Sources {
    disk: Vec<u8>,
    zeroes: Vec<u8>,
    raw: FaultServer,
    gzip: FaultServer,
    qcow2: FaultServer,
    archive: FaultServer,
    too_large: FaultServer,
    image: Pushed,
}

/// A DataVolume, and what it is to hold.
pub struct SoakVolume<'a> {
    pub name: String,
    pub kind: Kind,
    pub manifest: Value,
    pub content: &'a [u8],
}

impl SoakVolume<'_> {
    /// All succeed but those whose image is too large.
    pub fn is_refused(&self) -> bool {
        self.kind == Kind::TooLarge
    }

    /// Whether a DataVolume has ended as this one is to end. One that is refused is tried again and again.
    pub fn is_ended(&self, volume: &DataVolume) -> bool {
        if self.is_refused() {
            return condition_is_false_with(volume, "Running", TOO_SMALL);
        }
        phase(volume) == "Succeeded"
    }
}

impl Sources {
    pub async fn prepare(test: &Test) -> Result<Self> {
        let sparse = SparseDisk::mixed(LEN, 23);
        let disk = sparse.bytes();
        let gzip = compress(Compressor::GZIP, &disk).context("there is no gzip")?;
        let qemu = QemuImg::require().context("there is no qemu-img")?;
        let qcow2 = qemu.qcow2(&sparse, &Qcow2Options::default()).bytes();
        let archive = testkit::tar(&[("disk.img", &disk)]).context("there is no tar")?;
        let slow = |bytes: &[u8]| server(bytes).always(Fault::SlowDown(RATE));
        let sources = Self {
            zeroes: vec![0; LEN as usize],
            raw: slow(&disk),
            gzip: slow(&gzip),
            qcow2: slow(&qcow2),
            archive: slow(&archive),
            too_large: server(&vec![1; TOO_LARGE_LEN as usize]),
            image: test.push("disk", "latest", files_of_disk(disk.clone()))?,
            disk,
        };
        test.apply(imported(GOLDEN, "csi", "Block", &sources.raw)).await?;
        test.succeeded(GOLDEN).await?;
        test.take_snapshot(GOLDEN, SNAPSHOT).await?;
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": DATA_SOURCE },
            "spec": { "source": { "pvc": { "namespace": test.namespace(), "name": GOLDEN } } },
        }))
        .await?;
        Ok(sources)
    }

    /// The DataVolume of this number: all kinds in turn, each in all classes and modes.
    pub fn wanted(&self, test: &Test, number: usize) -> SoakVolume<'_> {
        let kind = KINDS[number % KINDS.len()];
        let (class, mode) = STORAGE[number / KINDS.len() % STORAGE.len()];
        // A device holds no files.
        let mode = if kind == Kind::Archive { "Filesystem" } else { mode };
        let name = format!("disk-{number}");
        let of = |name: &str| json!({ "namespace": test.namespace(), "name": name });
        let source = match kind {
            Kind::Raw => http(&self.raw),
            Kind::Gzip => http(&self.gzip),
            Kind::Qcow2 => http(&self.qcow2),
            Kind::S3 => json!({ "s3": { "url": self.raw.url_of("/bucket/disk.img") } }),
            Kind::Archive => http(&self.archive),
            Kind::TooLarge => http(&self.too_large),
            Kind::Registry => json!({ "registry": { "url": self.image.url() } }),
            Kind::Blank => json!({ "blank": {} }),
            Kind::Upload => json!({ "upload": {} }),
            Kind::OfClaim => json!({ "pvc": of(GOLDEN) }),
            Kind::OfSnapshot => json!({ "snapshot": of(SNAPSHOT) }),
            Kind::OfDataSource => Value::Null,
        };
        let content = if kind == Kind::Blank { &self.zeroes } else { &self.disk };
        let mut manifest = annotated(volume(&name, class, mode, source), BIND_AT_ONCE, "true");
        let spec = &mut manifest["spec"];
        match kind {
            Kind::Archive => spec["contentType"] = "archive".into(),
            Kind::OfDataSource => {
                spec["sourceRef"] = json!({ "kind": "DataSource", "name": DATA_SOURCE });
            }
            _ => {}
        }
        SoakVolume { name, kind, manifest, content }
    }

    /// What is uploaded.
    pub fn disk(&self) -> &[u8] {
        &self.disk
    }
}

fn http(server: &FaultServer) -> Value {
    json!({ "http": { "url": server.url_of("/disk.img") } })
}
