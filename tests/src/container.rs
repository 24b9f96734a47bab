//! Hand-built container images, including invalid layers and manifests.

use sha2::{Digest, Sha256};
use std::path::Path;

use testkit::{Compressor, compress};

/// `sha256:…` of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A tar, entry by entry.
#[derive(Clone, Debug, Default)]
pub struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    /// With a regular file.
    #[must_use]
    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(path, b'0', "", content)
    }

    /// With a directory.
    #[must_use]
    pub fn folder(self, path: &str) -> Self {
        self.entry(path, b'5', "", b"")
    }

    /// With a symbolic link.
    #[must_use]
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(path, b'2', target, b"")
    }

    /// With an entry of any type; `kind` is the type byte of its header.
    #[must_use]
    pub fn entry(mut self, path: &str, kind: u8, link: &str, content: &[u8]) -> Self {
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        let mode: &[u8] = if kind == b'5' { b"0000755\0" } else { b"0000640\0" };
        header[100..108].copy_from_slice(mode);
        let size = format!("{:011o}\0", content.len());
        header[124..136].copy_from_slice(size.as_bytes());
        header[136..148].copy_from_slice(b"00000000000\0");
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}

/// Compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    /// `tar+gzip`, by gzip.
    Gzip,
    /// `tar+gzip` as Docker calls it, by pigz.
    DockerGzip,
    /// `tar+zstd`
    Zstd,
    /// By xz, with the media type of a plain tar: only the content shows the compression.
    Xz,
}

/// A blob and its media type.
#[derive(Clone, Debug)]
pub struct Blob {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

impl Blob {
    /// A layer. `None`, with a message, if the compressor is missing.
    pub fn layer(tar: Vec<u8>, packing: Packing) -> Option<Self> {
        let (media_type, bytes) = match packing {
            Packing::Plain => ("application/vnd.oci.image.layer.v1.tar", Some(tar)),
            Packing::Gzip => {
                ("application/vnd.oci.image.layer.v1.tar+gzip", compress(Compressor::GZIP, &tar))
            }
            Packing::DockerGzip => (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                compress(Compressor::PIGZ, &tar),
            ),
            Packing::Zstd => {
                ("application/vnd.oci.image.layer.v1.tar+zstd", compress(Compressor::ZSTD, &tar))
            }
            Packing::Xz => {
                ("application/vnd.oci.image.layer.v1.tar", compress(Compressor::XZ, &tar))
            }
        };
        Some(Self { media_type: media_type.into(), bytes: bytes? })
    }

    /// A layer that is not compressed.
    pub fn plain(tar: Tar) -> Self {
        let media_type = "application/vnd.oci.image.layer.v1.tar".into();
        Self { media_type, bytes: tar.finish() }
    }

    /// `sha256:…`
    pub fn digest(&self) -> String {
        digest(&self.bytes)
    }

    /// As a manifest names it.
    pub fn descriptor(&self) -> serde_json::Value {
        serde_json::json!({
            "mediaType": self.media_type,
            "digest": self.digest(),
            "size": self.bytes.len(),
        })
    }
}

/// An image: its blobs and its manifest.
#[derive(Clone, Debug)]
pub struct ContainerImage {
    /// Config first, then layers, base first.
    pub blobs: Vec<Blob>,
    /// As it is sent.
    pub manifest: Vec<u8>,
    pub media_type: String,
}

impl ContainerImage {
    /// An image for linux on `architecture`, with these environment entries.
    pub fn new(architecture: &str, environment: &[&str], layers: Vec<Blob>) -> Self {
        // Right for layers that are not compressed; the tests do not read those of the others.
        let diff_ids: Vec<_> = layers.iter().map(Blob::digest).collect();
        let config = serde_json::json!({
            "architecture": architecture,
            "os": "linux",
            "config": { "Env": environment },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        Self::with_config(&config, layers)
    }

    /// The same with another config.
    pub fn with_config(config: &serde_json::Value, layers: Vec<Blob>) -> Self {
        let config = Blob {
            media_type: "application/vnd.oci.image.config.v1+json".into(),
            bytes: config.to_string().into_bytes(),
        };
        Self::from_blobs(config, layers)
    }

    /// An image, or an artifact, of these blobs.
    pub fn from_blobs(config: Blob, layers: Vec<Blob>) -> Self {
        let media_type = "application/vnd.oci.image.manifest.v1+json".to_owned();
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": config.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
        });
        let blobs = std::iter::once(config).chain(layers).collect();
        Self { blobs, manifest: manifest.to_string().into_bytes(), media_type }
    }

    /// One file in `/disk`, in a layer of its own.
    pub fn disk(content: &[u8]) -> Self {
        let tar = Tar::default().folder("disk/").file("disk/disk.img", content);
        Self::new("amd64", &[], vec![Blob::plain(tar)])
    }

    /// `sha256:…` of the manifest.
    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// As an index names it.
    pub fn descriptor(&self, architecture: &str) -> serde_json::Value {
        serde_json::json!({
            "mediaType": self.media_type,
            "digest": self.digest(),
            "size": self.manifest.len(),
            "platform": { "os": "linux", "architecture": architecture },
        })
    }

    /// An OCI layout in a tar, under these names.
    pub fn archive(&self, names: &[&str]) -> Vec<u8> {
        let instances: Vec<_> = names
            .iter()
            .map(|name| {
                let mut descriptor = self.descriptor("amd64");
                descriptor["annotations"] =
                    serde_json::json!({ "org.opencontainers.image.ref.name": name });
                descriptor
            })
            .collect();
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": instances }).to_string();
        let blob = |bytes: &[u8]| digest(bytes).replace("sha256:", "blobs/sha256/");
        let mut tar = Tar::default()
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
            .file(&blob(&self.manifest), &self.manifest);
        for one in &self.blobs {
            tar = tar.file(&blob(&one.bytes), &one.bytes);
        }
        tar.file("index.json", index.as_bytes()).finish()
    }

    /// Writes [`archive`](Self::archive) to a file.
    ///
    /// # Panics
    /// When it cannot.
    pub fn save(&self, path: &Path, names: &[&str]) {
        std::fs::write(path, self.archive(names)).expect("cannot write an archive");
    }
}

/// An index of images.
pub fn index(instances: &[serde_json::Value]) -> Vec<u8> {
    let media_type = "application/vnd.oci.image.index.v1+json";
    let index = serde_json::json!({
        "schemaVersion": 2, "mediaType": media_type, "manifests": instances
    });
    index.to_string().into_bytes()
}
