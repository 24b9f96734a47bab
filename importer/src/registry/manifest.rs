//! Indexes, manifests and configs: read within bounds, and what is to be done with them. No requests here.

use std::collections::BTreeMap;

use contract::Checksum;
use serde::Deserialize;

use super::image_error::ContainerImageError;
use super::reference::digest;

/// The largest manifest, index or config. Registries limit them to 4 MiB too.
pub(super) const DOCUMENT_LEN_MAX: u64 = 4 << 20;
/// Images that an index may name.
const INSTANCES_MAX: usize = 4096;
/// Docker allows 127.
const LAYERS_MAX: usize = 1024;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What a registry is requested.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// What a document names: bytes by their digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: Checksum,
    pub(super) size: u64,
}

/// A document that is one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    Index(Vec<Instance>),
    Manifest(Manifest),
}

/// An image that an index names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) descriptor: Descriptor,
    os: String,
    architecture: String,
    variant: String,
    /// `org.opencontainers.image.ref.name`
    pub(super) name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    /// Base first.
    pub(super) layers: Vec<Descriptor>,
}

/// What a manifest's layers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// Tars, the top one first.
    Layers(Vec<Descriptor>),
    /// The disk itself, stored as an artifact.
    Disk(Descriptor),
}

/// The config of a container image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) architecture: String,
    pub(super) environment: Vec<String>,
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    media_type: Option<String>,
    manifests: Option<Vec<RawInstance>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
}

#[derive(Deserialize)]
struct RawInstance {
    #[serde(flatten)]
    descriptor: RawDescriptor,
    platform: Option<RawPlatform>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPlatform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawConfig {
    architecture: Option<String>,
    config: Option<RawRuntime>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RawRuntime {
    env: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

impl Document {
    /// Reads what came; `content_type` is what the server called it.
    pub(super) fn parse(
        bytes: &[u8],
        content_type: Option<&str>,
    ) -> Result<Self, ContainerImageError> {
        let refuse = |because: String| refused("manifest", because);
        let raw: RawDocument =
            serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
        if raw.fs_layers.is_some() {
            return Err(refuse(
                "it is of schema 1, which is obsolete: push the image again".into(),
            ));
        }
        let media_type = raw.media_type.as_deref().filter(|kind| !kind.is_empty());
        let known = media_type.or(content_type.filter(|kind| is_ours(kind)));
        let (index, manifest) = match known {
            None => (true, true),
            Some(OCI_INDEX | DOCKER_LIST) => (true, false),
            Some(OCI_MANIFEST | DOCKER_MANIFEST) => (false, true),
            Some(other) => return Err(refuse(format!("its media type is {other:?}"))),
        };
        // A document that is both would be one image here and another to a scanner that checked it.
        match (raw.manifests, raw.layers, raw.config) {
            (Some(instances), None, None) if index => {
                if instances.len() > INSTANCES_MAX {
                    return Err(refuse(format!("it names more than {INSTANCES_MAX} images")));
                }
                let read = instances.into_iter().map(Instance::read);
                read.collect::<Result<_, _>>().map(Self::Index)
            }
            (None, Some(layers), Some(config)) if manifest => {
                if layers.len() > LAYERS_MAX {
                    return Err(refuse(format!("it names more than {LAYERS_MAX} layers")));
                }
                let layers = layers.into_iter().map(Descriptor::read).collect::<Result<_, _>>()?;
                Ok(Self::Manifest(Manifest { config: Descriptor::read(config)?, layers }))
            }
            _ => Err(refuse("it is neither an index nor a manifest".into())),
        }
    }
}

fn is_ours(kind: &str) -> bool {
    [OCI_INDEX, DOCKER_LIST, OCI_MANIFEST, DOCKER_MANIFEST].contains(&kind)
}

fn refused(what: &'static str, because: String) -> ContainerImageError {
    ContainerImageError::Document { what, because }
}

impl Descriptor {
    fn read(raw: RawDescriptor) -> Result<Self, ContainerImageError> {
        let digest = digest(&raw.digest).map_err(|_| {
            refused("manifest", format!("it names the digest {:?}", shortened(&raw.digest)))
        })?;
        Ok(Self { media_type: raw.media_type, digest, size: raw.size })
    }
}

/// Text from outside, as much of it as a message can bear.
fn shortened(text: &str) -> String {
    text.chars().take(160).collect()
}

impl Instance {
    fn read(raw: RawInstance) -> Result<Self, ContainerImageError> {
        let platform = raw.platform.unwrap_or_default();
        let name =
            raw.annotations.and_then(|mut all| all.remove("org.opencontainers.image.ref.name"));
        Ok(Self {
            descriptor: Descriptor::read(raw.descriptor)?,
            os: platform.os,
            architecture: platform.architecture,
            variant: platform.variant.unwrap_or_default(),
            name,
        })
    }
}

/// The image for linux on `architecture`: without a variant where there is one, else the first.
pub(super) fn choose<'a>(
    instances: &'a [Instance],
    architecture: &str,
) -> Result<&'a Descriptor, ContainerImageError> {
    let fits =
        |instance: &&Instance| instance.os == "linux" && instance.architecture == architecture;
    let plain = |instance: &&Instance| fits(instance) && instance.variant.is_empty();
    let found = instances.iter().find(plain).or_else(|| instances.iter().find(fits));
    found
        .map(|instance| &instance.descriptor)
        .ok_or_else(|| ContainerImageError::NoInstance { architecture: architecture.to_owned() })
}

impl Manifest {
    /// Whether the layers are tars or the disk, by media types alone.
    pub(super) fn contents(&self) -> Result<Contents, ContainerImageError> {
        let is_tar = |layer: &&Descriptor| is_tar(&layer.media_type);
        match (self.layers.iter().filter(is_tar).count(), self.layers.as_slice()) {
            (0, []) => Err(ContainerImageError::NoDisk),
            (0, [disk]) => Ok(Contents::Disk(disk.clone())),
            (tars, layers) if tars == layers.len() => {
                Ok(Contents::Layers(layers.iter().rev().cloned().collect()))
            }
            (_, layers) => {
                let other = layers.iter().find(|layer| !is_tar(layer));
                let kind = other.map(|layer| shortened(&layer.media_type)).unwrap_or_default();
                let because = format!("one of its {} layers is of the type {kind:?}", layers.len());
                Err(refused("manifest", because))
            }
        }
    }

    /// Its config describes a container. That of an artifact may be anything.
    pub(super) fn is_container(&self) -> bool {
        matches!(
            self.config.media_type.as_str(),
            "application/vnd.oci.image.config.v1+json"
                | "application/vnd.docker.container.image.v1+json"
        )
    }
}

/// `….tar`, `….tar+gzip`, `….tar.gzip`, `….tar+zstd`: layers of OCI and Docker. The compression is
/// detected from the content.
fn is_tar(media_type: &str) -> bool {
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    let (kind, _) = kind.rsplit_once('+').unwrap_or((kind, ""));
    let kind = [".gzip", ".zstd"].iter().find_map(|end| kind.strip_suffix(end)).unwrap_or(kind);
    kind.ends_with(".tar") || kind.ends_with("/x-tar") || kind.ends_with("/tar")
}

impl Config {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ContainerImageError> {
        let raw: RawConfig =
            serde_json::from_slice(bytes).map_err(|error| refused("config", error.to_string()))?;
        let RawRuntime { env, labels } = raw.config.unwrap_or_default();
        Ok(Self {
            architecture: raw.architecture.unwrap_or_default(),
            environment: env.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        })
    }

    /// Whether it can be used, and on the architecture that was requested, if any was.
    pub(super) fn check(&self, requested: Option<&str>) -> Result<(), ContainerImageError> {
        let set = |name| self.labels.get(name).is_some_and(|value| value == "1");
        if set("containers.bootc") || set("ostree.bootable") {
            return Err(ContainerImageError::Bootc);
        }
        match requested {
            Some(wanted) if wanted != self.architecture => Err(ContainerImageError::Architecture {
                found: shortened(&self.architecture),
                wanted: wanted.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// What Go calls the architecture of this machine.
pub(super) fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "x86" => "386",
        "loongarch64" => "loong64",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn described(kind: &str) -> String {
        format!(r#"{{"mediaType":"{kind}","digest":"sha256:{HEX}","size":7}}"#)
    }

    fn manifest(layers: &[&str]) -> Result<Document, ContainerImageError> {
        let layers: Vec<_> = layers.iter().map(|kind| described(kind)).collect();
        let config = described("application/vnd.oci.image.config.v1+json");
        let text = format!(r#"{{"config":{config},"layers":[{}]}}"#, layers.join(","));
        Document::parse(text.as_bytes(), Some(OCI_MANIFEST))
    }

    fn contents(layers: &[&str]) -> Result<usize, String> {
        let Document::Manifest(manifest) = manifest(layers).unwrap() else { panic!("an index") };
        match manifest.contents() {
            Ok(Contents::Layers(layers)) => Ok(layers.len()),
            Ok(Contents::Disk(_)) => Ok(0),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn media_types_decide_what_layers_are() {
        let tar = "application/vnd.oci.image.layer.v1.tar";
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let table: [(&[&str], Result<usize, &str>); 8] = [
            (&[tar], Ok(1)),
            (&["application/vnd.oci.image.layer.v1.tar+gzip", docker], Ok(2)),
            (&["application/vnd.oci.image.layer.v1.tar+zstd"], Ok(1)),
            (&["application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"], Ok(1)),
            (&["application/x-qemu-disk"], Ok(0)),
            (&["application/vnd.oci.image.layer.v1.raw+gzip"], Ok(0)),
            (&[tar, "application/x-qemu-disk"], Err("\"application/x-qemu-disk\"")),
            (&[], Err("Failed to find VM disk image file")),
        ];
        for (layers, expected) in table {
            match (contents(layers), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{layers:?}"),
                (Err(outcome), Err(phrase)) => assert!(outcome.contains(phrase), "{outcome}"),
                (found, _) => panic!("{layers:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_ambiguous_document_is_rejected() {
        let config = described("application/vnd.oci.image.config.v1+json");
        let table = [
            (format!(r#"{{"manifests":[],"layers":[],"config":{config}}}"#), None),
            (format!(r#"{{"manifests":[],"config":{config}}}"#), None),
            (r#"{"manifests":[]}"#.to_owned(), Some(OCI_MANIFEST)),
            (format!(r#"{{"mediaType":"{OCI_INDEX}","layers":[],"config":{config}}}"#), None),
            (r#"{"mediaType":"text/plain","manifests":[]}"#.to_owned(), None),
            (r#"{"fsLayers":[],"schemaVersion":1}"#.to_owned(), None),
            (r#"{"layers":[{"digest":"md5:12","size":1}]}"#.to_owned(), None),
            (format!(r#"{{"layers":[],"config":{{"digest":"sha256:{HEX}","size":-1}}}}"#), None),
            ("[".to_owned(), None),
        ];
        for (text, kind) in table {
            assert!(Document::parse(text.as_bytes(), kind).is_err(), "{text}");
        }
        let text = r#"{"manifests":[]}"#;
        assert_eq!(
            Document::parse(text.as_bytes(), Some("text/plain")).unwrap(),
            Document::Index(vec![])
        );
    }

    #[test]
    fn an_index_is_searched_for_linux_and_the_architecture() {
        let instance = |os: &str, architecture: &str, variant: &str, size: u64| Instance {
            descriptor: Descriptor {
                media_type: OCI_MANIFEST.into(),
                digest: digest(&format!("sha256:{HEX}")).unwrap(),
                size,
            },
            os: os.into(),
            architecture: architecture.into(),
            variant: variant.into(),
            name: None,
        };
        let instances = [
            instance("windows", "amd64", "", 1),
            instance("linux", "arm", "v7", 2),
            instance("linux", "arm64", "v8", 3),
            instance("linux", "amd64", "v3", 4),
            instance("linux", "amd64", "", 5),
        ];
        let chosen = |architecture| choose(&instances, architecture).map(|found| found.size);
        assert_eq!(chosen("amd64").unwrap(), 5);
        assert_eq!(chosen("arm64").unwrap(), 3);
        assert_eq!(
            chosen("absent").unwrap_err().to_string(),
            "Error retrieving image: choosing image instance: no image found in image index for \
             architecture \"absent\", variant \"\", OS \"linux\""
        );
    }

    #[test]
    fn a_config_contains_architecture_environment_and_bootable_flag() {
        let text = r#"{"architecture":"arm64","config":{"Env":["A=b"],"Labels":{"x":"1"}}}"#;
        let config = Config::parse(text.as_bytes()).unwrap();
        assert_eq!(config.environment, ["A=b"]);
        config.check(None).unwrap();
        config.check(Some("arm64")).unwrap();
        assert_eq!(
            config.check(Some("amd64")).unwrap_err().to_string(),
            "Error validating architecture: manifest image architecture: \"arm64\" doesn't match \
             requested architecture: \"amd64\""
        );
        for label in ["containers.bootc", "ostree.bootable"] {
            let text = format!(r#"{{"config":{{"Labels":{{"{label}":"1"}}}}}}"#);
            let error = Config::parse(text.as_bytes()).unwrap().check(None).unwrap_err();
            assert!(error.to_string().starts_with("bootc image detected:"), "{error}");
        }
        for empty in ["{}", r#"{"config":null}"#, r#"{"config":{"Env":null,"Labels":null}}"#] {
            assert_eq!(Config::parse(empty.as_bytes()).unwrap(), Config::default());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_documents_are_read_or_refused(text in "[\\[\\]{}\",:a-zA-Z0-9]{0,200}") {
            let _ = Document::parse(text.as_bytes(), None);
            let _ = Config::parse(text.as_bytes());
        }
    }
}
