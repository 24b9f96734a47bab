//! The archive around a layer: an OCI image layout (image-spec 1.1), with the file that `docker load` looks for.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use super::tar::{self, Entry};
use crate::shell;

/// What an image says besides its files.
pub struct Config {
    /// Program and arguments.
    pub entrypoint: Vec<String>,
    /// Unless somebody says otherwise.
    pub user: u32,
    /// `host/name:tag`.
    pub reference: String,
}

/// Writes the archive `path` around the uncompressed tar file `layer`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(path: &Path, layer: &Path, config: &Config) -> Result<()> {
    let layer_bytes = fs::read(layer).context("cannot read a layer")?;
    let layer_digest = digest_of(layer)?;
    let config_json = config_json(config, &layer_digest);
    let scratch = layer.with_extension("json");
    let config_digest = digest_of_text(&config_json, &scratch)?;
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
        descriptor(
            "application/vnd.oci.image.config.v1+json",
            &config_digest,
            config_json.len(),
            ""
        ),
        descriptor("application/vnd.oci.image.layer.v1.tar", &layer_digest, layer_bytes.len(), ""),
    );
    let manifest_digest = digest_of_text(&manifest, &scratch)?;
    fs::remove_file(&scratch).context("cannot remove a file")?;
    let Config { reference, .. } = config;
    let tag = reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let annotations = format!(
        r#","annotations":{{"io.containerd.image.name":"{reference}","org.opencontainers.image.ref.name":"{tag}"}}"#
    );
    let index = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{}]}}"#,
        descriptor(
            "application/vnd.oci.image.manifest.v1+json",
            &manifest_digest,
            manifest.len(),
            &annotations
        ),
    );
    let blob = |digest: &str| format!("blobs/sha256/{digest}");
    let docker = format!(
        r#"[{{"Config":"{}","RepoTags":["{reference}"],"Layers":["{}"]}}]"#,
        blob(&config_digest),
        blob(&layer_digest)
    );
    let file = |path: &str, text: String| Entry::file(path, 0o644, text.into());
    let mut entries = vec![
        file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#.into()),
        file("index.json", index),
        file("manifest.json", docker),
        Entry::folder("blobs", 0o755),
        Entry::folder("blobs/sha256", 0o755),
        file(&blob(&config_digest), config_json),
        file(&blob(&manifest_digest), manifest),
    ];
    entries.push(Entry::file(&blob(&layer_digest), 0o644, layer_bytes));
    let archive = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    tar::write(archive, &entries).with_context(|| format!("cannot write {}", path.display()))
}

fn config_json(config: &Config, layer_digest: &str) -> String {
    let Config { entrypoint, user, .. } = config;
    let words: Vec<_> = entrypoint.iter().map(|word| format!("\"{word}\"")).collect();
    let words = words.join(",");
    format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{"User":"{user}","Env":["PATH=/usr/bin:/bin"],"Entrypoint":[{words}],"WorkingDir":"/"}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer_digest}"]}}}}"#
    )
}

fn descriptor(kind: &str, digest: &str, size: usize, more: &str) -> String {
    format!(r#"{{"mediaType":"{kind}","digest":"sha256:{digest}","size":{size}{more}}}"#)
}

/// By the program that every distribution has, so that this crate needs no library for it.
fn digest_of(path: &Path) -> Result<String> {
    let text = shell::output(shell::program("sha256sum", &["--binary"]).arg(path))?;
    let digest = text.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    Ok(digest.to_owned())
}

fn digest_of_text(text: &str, scratch: &Path) -> Result<String> {
    fs::write(scratch, text).with_context(|| format!("cannot write {}", scratch.display()))?;
    digest_of(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_names_its_parts_by_their_digests() {
        let folder = std::env::temp_dir().join(format!("cdi-xtask-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let layer = folder.join("layer");
        fs::write(&layer, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest_of(&layer).unwrap(), abc);
        let config = Config {
            entrypoint: vec!["/usr/bin/a".into(), "-b".into()],
            user: 1001,
            reference: "localhost/a:dev".into(),
        };
        let archive = folder.join("a.tar");
        write(&archive, &layer, &config).unwrap();
        let first = fs::read(&archive).unwrap();
        write(&archive, &layer, &config).unwrap();
        assert!(fs::read(&archive).unwrap() == first, "the same image twice");
        let text = String::from_utf8_lossy(&first).into_owned();
        for expected in [
            &format!("blobs/sha256/{abc}"),
            r#""Entrypoint":["/usr/bin/a","-b"]"#,
            r#""io.containerd.image.name":"localhost/a:dev""#,
            r#""User":"1001""#,
        ] {
            assert!(text.contains(expected), "{expected}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
