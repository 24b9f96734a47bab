//! A directory of volumes: `DIRECTORY/NAMESPACE/NAME/disk.img`, with a record of the spec next to each disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{ContentType, DataVolume};
use pipeline::Report;
use pipeline::target::sync_directory;
use serde::{Deserialize, Serialize};

use super::plan::Existing;

#[derive(Clone, Debug)]
pub struct VolumeDirectory {
    folder: PathBuf,
    /// Name of the disk or data directory.
    content: &'static str,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeRecord {
    /// Fingerprint of the spec.
    spec: String,
    /// `ImportInProgress` or `Succeeded`.
    phase: String,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
}

/// A larger file was not written by this program.
const RECORD_MAX: u64 = 1 << 20;

impl VolumeDirectory {
    /// The names of `volume` must have been validated: they become parts of a path.
    pub fn new(volumes: &Path, volume: &DataVolume) -> Self {
        let meta = &volume.metadata;
        let content = match volume.spec.content_type() {
            Some(ContentType::Archive) => "data",
            _ => "disk.img",
        };
        Self { folder: volumes.join(meta.namespace()).join(&meta.name), content }
    }

    /// Path of the disk, or of the directory of an archive's files.
    pub fn disk(&self) -> PathBuf {
        self.folder.join(self.content)
    }

    fn record_path(&self) -> PathBuf {
        self.folder.join(".cdi-volume.json")
    }

    /// The state of the disk.
    ///
    /// A disk gets its name once it is complete, and no import starts before the record is written. So a disk with
    /// a record is complete, even if the process was killed before it updated the record.
    ///
    /// # Errors
    /// When disk or record cannot be read.
    pub fn existing_disk(&self) -> Result<Existing> {
        let disk = self.disk();
        match fs::symlink_metadata(&disk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot read the metadata of {}", disk.display()));
            }
        }
        let path = self.record_path();
        let failed = || format!("cannot read {}", path.display());
        match fs::metadata(&path) {
            Ok(found) if found.len() <= RECORD_MAX => {}
            Ok(_) => return Ok(Existing::Foreign),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Foreign),
            Err(error) => return Err(error).with_context(failed),
        }
        let text = fs::read(&path).with_context(failed)?;
        Ok(match serde_json::from_slice::<VolumeRecord>(&text) {
            Ok(note) => Existing::Complete { spec: note.spec },
            Err(_) => Existing::Foreign,
        })
    }

    /// Creates the directory and records that an import of the spec with this fingerprint starts.
    ///
    /// # Errors
    /// When the directory or record cannot be written.
    pub fn record_start(&self, spec: &str) -> Result<()> {
        create_directory_durably(&self.folder)
            .with_context(|| format!("cannot create the directory {}", self.folder.display()))?;
        self.write(&VolumeRecord {
            spec: spec.to_owned(),
            phase: "ImportInProgress".into(),
            report: None,
        })
    }

    ///
    /// # Errors
    /// When the directory or record cannot be written.
    pub fn record_completion(&self, spec: &str, report: &Report) -> Result<()> {
        let report = Some(report.clone());
        self.write(&VolumeRecord { spec: spec.to_owned(), phase: "Succeeded".into(), report })
    }

    /// Atomic and durable: a record is never partly written.
    fn write(&self, note: &VolumeRecord) -> Result<()> {
        let path = self.record_path();
        let failed = || format!("cannot write {}", path.display());
        let json = serde_json::to_vec_pretty(note).with_context(failed)?;
        let new = path.with_extension("json.new");
        let replace = || {
            let mut file = File::create(&new)?;
            file.write_all(&json)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_directory(&self.folder)
        };
        replace().with_context(failed)
    }
}

/// Creates a directory and its parents, each with fsync, so that they survive a power cut.
fn create_directory_durably(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = match folder.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    create_directory_durably(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {} // a race
        result => result?,
    }
    sync_directory(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(folder: &Path) -> VolumeDirectory {
        let mut volume = DataVolume::default();
        volume.metadata.name = "a".into();
        volume.metadata.namespace = Some("b".into());
        VolumeDirectory::new(folder, &volume)
    }

    #[test]
    fn disk_without_a_record_is_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = folder.path().join("x/y");
        let directory = directory(&volumes);
        assert_eq!(directory.disk(), volumes.join("b/a/disk.img"));
        assert_eq!(directory.existing_disk().unwrap(), Existing::Nothing);
        directory.record_start("sha256:1").unwrap();
        assert_eq!(
            directory.existing_disk().unwrap(),
            Existing::Nothing,
            "a record without a disk"
        );
        fs::write(directory.disk(), "").unwrap();
        assert_eq!(
            directory.existing_disk().unwrap(),
            Existing::Complete { spec: "sha256:1".into() }
        );
        directory.record_completion("sha256:2", &Report::default()).unwrap();
        assert_eq!(
            directory.existing_disk().unwrap(),
            Existing::Complete { spec: "sha256:2".into() }
        );
        fs::write(directory.record_path(), "{}").unwrap();
        assert_eq!(directory.existing_disk().unwrap(), Existing::Foreign);
        fs::remove_file(directory.record_path()).unwrap();
        assert_eq!(directory.existing_disk().unwrap(), Existing::Foreign);
    }

    #[test]
    fn directory_that_cannot_be_created_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = directory(&file).record_start("sha256:1").unwrap_err();
        assert!(error.to_string().starts_with("cannot create the directory "), "{error}");
    }
}
