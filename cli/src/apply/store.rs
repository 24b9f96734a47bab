//! A folder of volumes: `FOLDER/NAMESPACE/NAME/disk.img`, and beside each disk a note of what it was made from.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{ContentType, DataVolume};
use pipeline::Report;
use serde::{Deserialize, Serialize};

use super::plan::Existing;

/// The folder of one volume.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    /// What a complete volume holds.
    content: &'static str,
}

/// What is noted beside a disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// Fingerprint of the spec.
    spec: String,
    /// `ImportInProgress` or `Succeeded`.
    phase: String,
    /// What was done, once it was.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    report: Option<Report>,
}

/// A note is small; more than this was not written here.
const NOTE_MAX: u64 = 1 << 20;

impl Place {
    /// That of `volume` in `volumes`. Its names must have been validated: they become parts of a path.
    pub fn new(volumes: &Path, volume: &DataVolume) -> Self {
        let meta = &volume.metadata;
        let content = match volume.spec.content_type() {
            Some(ContentType::Archive) => "data",
            _ => "disk.img",
        };
        Self { folder: volumes.join(meta.namespace()).join(&meta.name), content }
    }

    /// Where the disk belongs, or the folder of an archive's files.
    pub fn disk(&self) -> PathBuf {
        self.folder.join(self.content)
    }

    fn note(&self) -> PathBuf {
        self.folder.join(".cdi-volume.json")
    }

    /// What is there.
    ///
    /// A disk has its name only once it is complete, and no import begins before its note is written. So a disk beside
    /// any note is complete, even where the process was killed before it could say so.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn look(&self) -> Result<Existing> {
        let disk = self.disk();
        match fs::symlink_metadata(&disk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot look at {}", disk.display()));
            }
        }
        let path = self.note();
        let failed = || format!("cannot read {}", path.display());
        match fs::metadata(&path) {
            Ok(found) if found.len() <= NOTE_MAX => {}
            Ok(_) => return Ok(Existing::Foreign),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Foreign),
            Err(error) => return Err(error).with_context(failed),
        }
        let text = fs::read(&path).with_context(failed)?;
        Ok(match serde_json::from_slice::<Note>(&text) {
            Ok(note) => Existing::Complete { spec: note.spec },
            Err(_) => Existing::Foreign,
        })
    }

    /// Makes the folder and notes that a disk is going to be made from the spec with this fingerprint.
    ///
    /// # Errors
    /// Of the file system.
    pub fn begin(&self, spec: &str) -> Result<()> {
        make_folder(&self.folder)
            .with_context(|| format!("cannot make the folder {}", self.folder.display()))?;
        self.write(&Note { spec: spec.to_owned(), phase: "ImportInProgress".into(), report: None })
    }

    /// Notes that the disk is complete.
    ///
    /// # Errors
    /// Of the file system.
    pub fn complete(&self, spec: &str, report: &Report) -> Result<()> {
        let report = Some(report.clone());
        self.write(&Note { spec: spec.to_owned(), phase: "Succeeded".into(), report })
    }

    /// At once and durably: a note is never seen half written.
    fn write(&self, note: &Note) -> Result<()> {
        let path = self.note();
        let failed = || format!("cannot write {}", path.display());
        let json = serde_json::to_vec_pretty(note).with_context(failed)?;
        let new = path.with_extension("json.new");
        let replace = || {
            let mut file = File::create(&new)?;
            file.write_all(&json)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        replace().with_context(failed)
    }
}

/// Makes a folder and those above it, so that their names survive a power cut.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = match folder.parent() {
        Some(above) if above != Path::new("") => above,
        _ => Path::new("."),
    };
    make_folder(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {} // a race
        result => result?,
    }
    File::open(above)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(folder: &Path) -> Place {
        let mut volume = DataVolume::default();
        volume.metadata.name = "a".into();
        volume.metadata.namespace = Some("b".into());
        Place::new(folder, &volume)
    }

    #[test]
    fn a_disk_counts_as_ours_only_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = folder.path().join("x/y");
        let place = place(&volumes);
        assert_eq!(place.disk(), volumes.join("b/a/disk.img"));
        assert_eq!(place.look().unwrap(), Existing::Nothing);
        place.begin("sha256:1").unwrap();
        assert_eq!(place.look().unwrap(), Existing::Nothing, "a note alone is no disk");
        fs::write(place.disk(), "").unwrap();
        assert_eq!(place.look().unwrap(), Existing::Complete { spec: "sha256:1".into() });
        place.complete("sha256:2", &Report::default()).unwrap();
        assert_eq!(place.look().unwrap(), Existing::Complete { spec: "sha256:2".into() });
        fs::write(place.note(), "{}").unwrap();
        assert_eq!(place.look().unwrap(), Existing::Foreign);
        fs::remove_file(place.note()).unwrap();
        assert_eq!(place.look().unwrap(), Existing::Foreign);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = place(&file).begin("sha256:1").unwrap_err();
        assert!(error.to_string().starts_with("cannot make the folder "), "{error}");
    }
}
