//! Container images without a container engine: an archive around one layer of static programs and the few files that
//! they need. The same files give the same bytes, if the same compressor gives the same.
//!
//! The archive is an OCI image layout (image-spec 1.1), with the file that `docker load` looks for.

mod tar;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use tar::Entry;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// SHA-256 of some bytes, as 64 hexadecimal digits: the caller supplies the hash function.
pub type Sha256<'a> = &'a dyn Fn(&[u8]) -> io::Result<String>;

/// Compresses bytes in gzip: the caller supplies the compressor.
pub type Gzip<'a> = &'a dyn Fn(&[u8]) -> io::Result<Vec<u8>>;

/// Where the loader of this machine finds what a program is linked with. Nothing, for a static one.
///
/// # Errors
/// When `ldd` cannot be run.
pub fn libraries(program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    if !output.status.success() {
        return Ok(Vec::new()); // "not a dynamic executable"
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // `name => /path (0x…)`, or the loader itself: `/path (0x…)`.
    let path = |line: &str| {
        let found = line.split(" => ").last()?.split(" (").next()?.trim();
        found.starts_with('/').then(|| PathBuf::from(found))
    };
    Ok(text.lines().filter_map(path).collect())
}

/// An image, for linux on amd64.
#[derive(Clone, Debug)]
pub struct Image {
    /// `host/name:tag`.
    pub reference: String,
    /// Program and arguments.
    pub entrypoint: Vec<String>,
    /// Default user of the container. `None`: root.
    pub user: Option<u32>,
    /// Everything in it, directories before what is in them.
    pub files: Vec<Entry>,
}

/// Bytes, and what they hash to.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

/// What a registry stores of an image.
struct Parts {
    layer: Blob,
    config: Blob,
    manifest: Blob,
}

impl Image {
    /// The archive. Its layer is compressed if there is a compressor: it is smaller on the network and in a registry, and takes
    /// longer to build and to load.
    ///
    /// # Errors
    /// When a name is too long for its format, or nothing can be hashed or compressed.
    pub fn archive(&self, sha256: Sha256<'_>, gzip: Option<Gzip<'_>>) -> io::Result<Vec<u8>> {
        let Parts { layer, config, manifest } = self.parts(sha256, gzip)?;
        let tag = self.reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let (reference, tag) = (quoted(&self.reference), quoted(tag));
        let named = format!(
            r#","annotations":{{"io.containerd.image.name":{reference},"org.opencontainers.image.ref.name":{tag}}}"#
        );
        let index = format!(
            r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{}]}}"#,
            manifest.descriptor(MANIFEST, &named)
        );
        let docker = format!(
            r#"[{{"Config":"{}","RepoTags":[{reference}],"Layers":["{}"]}}]"#,
            config.path(),
            layer.path()
        );
        let file = |path: &str, bytes: Vec<u8>| Entry::file(path, 0o644, bytes);
        let mut entries = vec![
            file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.into()),
            file("index.json", index.into()),
            file("manifest.json", docker.into()),
            Entry::directory("blobs", 0o755),
            Entry::directory("blobs/sha256", 0o755),
        ];
        entries.extend([config, manifest, layer].map(|blob| file(&blob.path(), blob.bytes)));
        tar::archive(&entries)
    }

    /// `sha256:…` of the manifest, by which a registry names the image with an uncompressed layer.
    ///
    /// # Errors
    /// As [`Image::archive`].
    pub fn digest(&self, sha256: Sha256<'_>) -> io::Result<String> {
        Ok(format!("sha256:{}", self.parts(sha256, None)?.manifest.digest))
    }

    fn parts(&self, sha256: Sha256<'_>, gzip: Option<Gzip<'_>>) -> io::Result<Parts> {
        let mut layer = Blob::new(tar::archive(&self.files)?, sha256)?;
        // The configuration names the layer by its content, the manifest by what is stored of it.
        let config = Blob::new(self.config(&layer).into(), sha256)?;
        let mut layer_type = LAYER;
        if let Some(gzip) = gzip {
            layer = Blob::new(gzip(&layer.bytes)?, sha256)?;
            layer_type = GZIP_LAYER;
        }
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{},"layers":[{}]}}"#,
            config.descriptor(CONFIG, ""),
            layer.descriptor(layer_type, "")
        );
        let manifest = Blob::new(manifest.into(), sha256)?;
        Ok(Parts { layer, config, manifest })
    }

    fn config(&self, layer: &Blob) -> String {
        let words: Vec<_> = self.entrypoint.iter().map(|word| quoted(word)).collect();
        let user = self.user.map(|user| format!(r#""User":"{user}","#)).unwrap_or_default();
        format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{{user}"Env":["PATH=/usr/bin:/bin"],"Entrypoint":[{}],"WorkingDir":"/"}},"rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
            words.join(","),
            layer.digest
        )
    }
}

impl Blob {
    fn new(bytes: Vec<u8>, sha256: Sha256<'_>) -> io::Result<Self> {
        Ok(Self { digest: sha256(&bytes)?, bytes })
    }

    /// As a manifest names it; `more` begins with a comma, or is nothing.
    fn descriptor(&self, kind: &str, more: &str) -> String {
        let Self { digest, bytes } = self;
        let size = bytes.len();
        format!(r#"{{"mediaType":"{kind}","digest":"sha256:{digest}","size":{size}{more}}}"#)
    }

    /// Where it lies in the archive.
    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

/// As JSON has a text.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    const HASH: Sha256<'static> = &|bytes| Ok(sha256(bytes));

    fn sha256(bytes: &[u8]) -> String {
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn image() -> Image {
        Image {
            reference: "localhost/a:dev".into(),
            entrypoint: vec!["/usr/bin/a".into(), "-b".into()],
            user: Some(1001),
            files: vec![
                Entry::directory("usr", 0o755),
                Entry::directory("usr/bin", 0o755),
                Entry::file("usr/bin/a", 0o755, b"program".to_vec()),
                Entry::link("sh", "/usr/bin/a"),
            ],
        }
    }

    #[test]
    fn an_image_names_its_parts_by_their_digests() {
        let archive = image().archive(HASH, None).unwrap();
        assert!(archive == image().archive(HASH, None).unwrap(), "the same image twice");
        let layer = tar::archive(&image().files).unwrap();
        let text = String::from_utf8_lossy(&archive).into_owned();
        for expected in [
            format!(r#""diff_ids":["sha256:{}"]"#, sha256(&layer)).as_str(),
            r#""Entrypoint":["/usr/bin/a","-b"]"#,
            r#""io.containerd.image.name":"localhost/a:dev""#,
            r#""org.opencontainers.image.ref.name":"dev""#,
            r#""User":"1001""#,
        ] {
            assert!(text.contains(expected), "{expected}");
        }
        let manifest = image().digest(HASH).unwrap();
        assert!(text.contains(&format!(r#""digest":"{manifest}""#)), "{manifest}");
        let root = Image { user: None, ..image() }.archive(HASH, None).unwrap();
        assert!(!String::from_utf8_lossy(&root).contains(r#""User""#));
    }

    #[test]
    fn compressed_layer_is_named_by_its_bytes_and_its_content() {
        let compressed = b"compressed".to_vec();
        let gzip: Gzip<'_> = &|_| Ok(compressed.clone());
        let archive = image().archive(HASH, Some(gzip)).unwrap();
        let text = String::from_utf8_lossy(&archive).into_owned();
        let (content, stored) =
            (sha256(&tar::archive(&image().files).unwrap()), sha256(&compressed));
        for expected in [
            format!(r#""diff_ids":["sha256:{content}"]"#),
            format!(r#"{{"mediaType":"{GZIP_LAYER}","digest":"sha256:{stored}","size":10}}"#),
            format!(r#""Layers":["blobs/sha256/{stored}"]"#),
        ] {
            assert!(text.contains(&expected), "{expected} is not in {text}");
        }
        assert!(!text.contains("program"), "the layer is also stored as it is");
    }

    #[test]
    fn the_libraries_of_a_program_are_listed() {
        let own = std::env::current_exe().unwrap();
        let found = libraries(&own).unwrap();
        assert!(found.iter().all(|path| path.is_file()), "{found:?}");
        assert!(found.iter().any(|path| path.to_string_lossy().contains("libc.")), "{found:?}");
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("no-program");
        std::fs::write(&text, "text").unwrap();
        assert!(libraries(&text).unwrap().is_empty());
    }

    #[test]
    fn texts_are_quoted_as_json_wants_them() {
        for text in ["plain", "a \"b\" \\ c", "tab\tand\nline", "über"] {
            let read: String = serde_json::from_str(&quoted(text)).unwrap();
            assert_eq!(read, text);
        }
    }

    #[test]
    fn tar_reads_the_archive_and_the_layer_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("image.tar");
        std::fs::write(&archive, image().archive(HASH, None).unwrap()).unwrap();
        let unpack = |file: &Path| {
            let mut tar = Command::new("tar");
            let output =
                tar.arg("-C").arg(directory.path()).arg("-xvf").arg(file).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let names = unpack(&archive);
        assert!(names.starts_with("oci-layout\nindex.json\nmanifest.json\nblobs/\n"), "{names}");
        let layer = directory.path().join(names.lines().last().unwrap());
        for document in ["oci-layout", "index.json", "manifest.json"] {
            let bytes = std::fs::read(directory.path().join(document)).unwrap();
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        }
        assert_eq!(unpack(&layer), "usr/\nusr/bin/\nusr/bin/a\nsh\n");
        assert_eq!(std::fs::read(directory.path().join("usr/bin/a")).unwrap(), b"program");
        let link = std::fs::read_link(directory.path().join("sh")).unwrap();
        assert_eq!(link, Path::new("/usr/bin/a"));
    }
}
