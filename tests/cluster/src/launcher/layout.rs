//! A tree of files as an archive of container images with one layer, which keeps the capabilities of files.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::shell::{output, program};

/// The extended attribute that is kept.
pub const CAPABILITY: &str = "security.capability";

/// An image of the tree.
pub struct ImageConfig {
    pub reference: &'static str,
    /// In `/usr/bin`: what a container starts whose pod names no command.
    pub program: &'static str,
    /// Of the process; root by default.
    pub user: Option<u32>,
}

/// Packs the tree at `root` as `image.tar` in the folder `work`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn pack(root: &Path, work: &Path, images: &[ImageConfig]) -> Result<()> {
    let layout = work.join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = work.join("layer.tar");
    let tar = ["--create", "--sort=name", "--mtime=@0", "--numeric-owner", "--format=pax"];
    let mut pack = program("tar", &tar);
    pack.args(["--xattrs", &format!("--xattrs-include={CAPABILITY}"), "--file"]).arg(&layer);
    output(pack.arg("--directory").arg(root).arg("."))?;
    let (layer_digest, layer_size) = (digest_of(&layer)?, fs::metadata(&layer)?.len());
    fs::rename(&layer, blobs.join(&layer_digest))?;

    let keep = |kind: &str, value: &Value| -> Result<Value> {
        let text = value.to_string();
        let digest = digits(Sha256::new_with_prefix(&text));
        fs::write(blobs.join(&digest), &text)?;
        Ok(descriptor(kind, &digest, text.len() as u64))
    };
    let layer = descriptor("layer.v1.tar", &layer_digest, layer_size);
    let mut manifests = Vec::new();
    for image in images {
        let mut manifest = keep(
            "manifest.v1+json",
            &json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": keep("config.v1+json", &image.config(&layer_digest))?,
                "layers": [layer],
            }),
        )?;
        manifest["annotations"] = json!({ "io.containerd.image.name": image.reference });
        manifests.push(manifest);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    let mut archive = program("tar", &["--create", "--file"]);
    archive.arg(work.join("image.tar")).arg("--directory").arg(&layout).arg(".");
    output(&mut archive).map(drop)
}

impl ImageConfig {
    fn config(&self, layer_digest: &str) -> Value {
        let mut config = json!({
            "architecture": "amd64", "os": "linux",
            "config": {
                "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": [format!("/usr/bin/{}", self.program)],
                "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        });
        if let Some(user) = self.user {
            config["config"]["User"] = user.to_string().into();
        }
        config
    }
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"), "size": size,
    })
}

fn digest_of(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digits(sum)),
            n => sum.update(&buffer[..n]),
        }
    }
}

/// In hexadecimal.
pub fn digits(sum: Sha256) -> String {
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
