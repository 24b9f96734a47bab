//! The objects of all manifests: DataVolumes, and the Secrets and ConfigMaps to which they refer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use api::{ConfigMap, DataVolume, Document, ObjectMeta, Secret};

#[derive(Debug, Default)]
pub struct Manifest {
    pub volumes: Vec<DataVolume>,
    pub references: References,
    /// Kind and name of each other object.
    pub others: Vec<String>,
}

/// Secrets and ConfigMaps by namespace and name.
#[derive(Debug, Default)]
pub struct References {
    secrets: BTreeMap<(String, String), Secret>,
    config_maps: BTreeMap<(String, String), ConfigMap>,
}

impl References {
    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        self.secrets.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        self.config_maps.get(&(namespace.to_owned(), name.to_owned()))
    }
}

impl Manifest {
    /// Adds the objects of a manifest. A later Secret or ConfigMap replaces one of the same name, as in a cluster.
    ///
    /// # Errors
    /// When it cannot be parsed.
    pub fn add(&mut self, text: &str) -> Result<(), api::document::Error> {
        let key = |meta: &ObjectMeta| (meta.namespace().to_owned(), meta.name.clone());
        for document in api::read(text)? {
            match document {
                Document::DataVolume(volume) => self.volumes.push(*volume),
                Document::Secret(secret) => {
                    self.references.secrets.insert(key(&secret.metadata), secret);
                }
                Document::ConfigMap(config) => {
                    self.references.config_maps.insert(key(&config.metadata), config);
                }
                Document::Other { kind, name, .. } => self.others.push(format!("{kind} {name}")),
            }
        }
        Ok(())
    }
}

/// A larger file was given by mistake.
const MANIFEST_MAX: u64 = 16 << 20;

/// Reads all manifests; `-` is standard input.
///
/// # Errors
/// When one cannot be read or parsed.
pub fn read(files: &[PathBuf]) -> Result<Manifest> {
    let mut manifest = Manifest::default();
    for file in files {
        let text = text_of(file).with_context(|| format!("cannot read {}", file.display()))?;
        manifest.add(&text).with_context(|| format!("cannot use {}", file.display()))?;
    }
    Ok(manifest)
}

fn text_of(file: &Path) -> Result<String> {
    let mut text = String::new();
    let limit = MANIFEST_MAX + 1;
    let length = if file == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_string(&mut text)?
    } else {
        File::open(file)?.take(limit).read_to_string(&mut text)?
    };
    ensure!(
        length as u64 <= MANIFEST_MAX,
        "the file is larger than 16 MiB, too large for a manifest"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_within_their_namespace() {
        let mut manifest = Manifest::default();
        let secret =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: a}\nstringData: {k: ";
        manifest.add(&format!("{secret}old}}")).unwrap();
        manifest.add(&format!("{secret}new}}\n---\nkind: Pod\nmetadata: {{name: p}}\n")).unwrap();
        assert_eq!(manifest.references.secret("a", "s").unwrap().string_data["k"], "new");
        assert_eq!(manifest.references.secret("default", "s"), None);
        assert_eq!(manifest.references.config_map("a", "s"), None);
        assert_eq!(manifest.others, ["Pod p"]);
    }

    #[test]
    fn oversized_file_is_not_a_manifest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MANIFEST_MAX + 1).unwrap();
        let error = read(&[file.path().to_owned()]).unwrap_err();
        assert!(error.root_cause().to_string().contains("larger than 16 MiB"), "{error:?}");
        let error = read(&[file.path().join("no")]).unwrap_err();
        assert!(error.to_string().starts_with("cannot read "), "{error}");
    }
}
