//! Container images without a container engine: an archive around one layer of static programs and the few files that
//! they need. The same files give the same bytes.
//!
//! The archive is an OCI image layout (image-spec 1.1), with the file that `docker load` looks for.

mod tar;

use std::io;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use tar::Entry;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image, for linux on amd64.
#[derive(Clone, Debug)]
pub struct Image {
    /// `host/name:tag`.
    pub reference: String,
    /// Program and arguments.
    pub entrypoint: Vec<String>,
    /// Unless somebody says otherwise. `None`: root.
    pub user: Option<u32>,
    /// Everything in it, folders before what is in them.
    pub files: Vec<Entry>,
}

impl Image {
    /// The archive.
    ///
    /// # Errors
    /// When a name is too long for its format.
    pub fn archive(&self) -> io::Result<Vec<u8>> {
        let layer = tar::archive(&self.files)?;
        let config = self.config(&layer).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let reference = &self.reference;
        let tag = reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let mut named = descriptor(MANIFEST, &manifest);
        named["annotations"] = json!({
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
        let docker =
            json!([{ "Config": blob(&config), "RepoTags": [reference], "Layers": [blob(&layer)] }]);
        let text = |path: &str, value: Value| Entry::file(path, 0o644, value.to_string().into());
        tar::archive(&[
            text("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
            text("index.json", index),
            text("manifest.json", docker),
            Entry::folder("blobs", 0o755),
            Entry::folder("blobs/sha256", 0o755),
            Entry::file(&blob(&config), 0o644, config),
            Entry::file(&blob(&manifest), 0o644, manifest),
            Entry::file(&blob(&layer), 0o644, layer),
        ])
    }

    fn config(&self, layer: &[u8]) -> Value {
        let mut how = json!({
            "Env": ["PATH=/usr/bin:/bin"],
            "Entrypoint": self.entrypoint,
            "WorkingDir": "/",
        });
        if let Some(user) = self.user {
            how["User"] = user.to_string().into();
        }
        json!({
            "architecture": "amd64",
            "os": "linux",
            "config": how,
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(layer))] },
        })
    }
}

fn descriptor(kind: &str, bytes: &[u8]) -> Value {
    let digest = format!("sha256:{}", digest(bytes));
    json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
}

/// Where a blob lies in the archive.
fn blob(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", digest(bytes))
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn image() -> Image {
        Image {
            reference: "localhost/a:dev".into(),
            entrypoint: vec!["/usr/bin/a".into(), "-b".into()],
            user: Some(1001),
            files: vec![
                Entry::folder("usr", 0o755),
                Entry::folder("usr/bin", 0o755),
                Entry::file("usr/bin/a", 0o755, b"program".to_vec()),
                Entry::link("sh", "/usr/bin/a"),
            ],
        }
    }

    #[test]
    fn an_image_names_its_parts_by_their_digests() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), abc);
        let archive = image().archive().unwrap();
        assert!(archive == image().archive().unwrap(), "the same image twice");
        let layer = tar::archive(&image().files).unwrap();
        let text = String::from_utf8_lossy(&archive).into_owned();
        for expected in [
            &format!(r#""diff_ids":["sha256:{}"]"#, digest(&layer)),
            r#""Entrypoint":["/usr/bin/a","-b"]"#,
            r#""io.containerd.image.name":"localhost/a:dev""#,
            r#""org.opencontainers.image.ref.name":"dev""#,
            r#""User":"1001""#,
        ] {
            assert!(text.contains(expected), "{expected}");
        }
        let root = Image { user: None, ..image() }.archive().unwrap();
        assert!(!String::from_utf8_lossy(&root).contains(r#""User""#));
    }

    #[test]
    fn tar_reads_the_archive_and_the_layer_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("image.tar");
        std::fs::write(&archive, image().archive().unwrap()).unwrap();
        let unpack = |file: &Path| {
            let mut tar = Command::new("tar");
            let output = tar.arg("-C").arg(folder.path()).arg("-xvf").arg(file).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let names = unpack(&archive);
        assert!(names.starts_with("oci-layout\nindex.json\nmanifest.json\nblobs/\n"), "{names}");
        let layer = folder.path().join(names.lines().last().unwrap());
        assert_eq!(unpack(&layer), "usr/\nusr/bin/\nusr/bin/a\nsh\n");
        assert_eq!(std::fs::read(folder.path().join("usr/bin/a")).unwrap(), b"program");
        let link = std::fs::read_link(folder.path().join("sh")).unwrap();
        assert_eq!(link, Path::new("/usr/bin/a"));
    }
}
