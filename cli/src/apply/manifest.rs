//! The objects of all manifests, sorted into volumes and what volumes refer to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use api::{ConfigMap, DataVolume, Document, ObjectMeta, Secret};

/// The objects of all manifests.
#[derive(Debug, Default)]
pub struct Manifest {
    /// In order.
    pub volumes: Vec<DataVolume>,
    /// What they may refer to.
    pub references: References,
    /// Kind and name of each object that is neither.
    pub others: Vec<String>,
}

/// Secrets and ConfigMaps by namespace and name.
#[derive(Debug, Default)]
pub struct References {
    secrets: BTreeMap<(String, String), Secret>,
    config_maps: BTreeMap<(String, String), ConfigMap>,
}

impl References {
    /// The Secret `name` in `namespace`.
    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        self.secrets.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The ConfigMap `name` in `namespace`.
    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        self.config_maps.get(&(namespace.to_owned(), name.to_owned()))
    }
}

impl Manifest {
    /// Adds the objects of a manifest. A later Secret or ConfigMap of the same name wins, as in a cluster.
    ///
    /// # Errors
    /// When it cannot be read.
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

/// A manifest is small; whatever is larger was given by mistake.
const MANIFEST_MAX: u64 = 16 << 20;

/// All manifests in `files`; `-` is standard input.
///
/// # Errors
/// When one cannot be read.
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
    ensure!(length as u64 <= MANIFEST_MAX, "it is larger than 16 MiB, so it is no manifest");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_in_their_namespace_only() {
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
    fn what_is_too_large_is_no_manifest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MANIFEST_MAX + 1).unwrap();
        let error = read(&[file.path().to_owned()]).unwrap_err();
        assert!(error.root_cause().to_string().contains("larger than 16 MiB"), "{error:?}");
        let error = read(&[file.path().join("no")]).unwrap_err();
        assert!(error.to_string().starts_with("cannot read "), "{error}");
    }
}
