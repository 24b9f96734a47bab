//! An OCI layout in a tar: images in a file, read where they lie.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use contract::Checksum;
use formats::tar::{Archive, Kind};
use pipeline::{ByteStream, Source};

use super::image_error::ContainerImageError;
use super::manifest::{DOCUMENT_LEN_MAX, Descriptor, Document, Instance};
use super::reference::{ArchiveReference, digest};
use crate::error::Error;
use crate::file::FileSource;

/// Files in such a tar.
const ENTRIES_MAX: usize = 64 << 10;
const BLOCK: u64 = 512;

/// A tar with its table of contents.
pub(super) struct ArchiveFile {
    path: String,
    source: FileSource,
    blobs: HashMap<Checksum, (u64, u64)>,
    index: Vec<Instance>,
}

impl ArchiveFile {
    /// Reads the headers of the tar, and its index.
    pub(super) fn open(reference: &ArchiveReference) -> Result<Self, Error> {
        let path = &reference.path;
        let failed = |source| Error::File { what: "open", path: path.clone(), source };
        let file = File::open(path).map_err(failed)?;
        let source = FileSource::open(path)?;
        let shown = path.display().to_string();
        let refuse =
            |because: String| ContainerImageError::Archive { path: shown.clone(), because };
        let length = source.facts().length;
        let length = length.ok_or_else(|| refuse("it is a pipe, and not read in order".into()))?;
        let (mut blobs, mut index) = (HashMap::new(), None);
        let mut at = 0;
        for count in 0.. {
            let mut tar = Archive::new(FileAt { file: &file, at });
            let entry = tar.next_entry().map_err(|error| refuse(error.to_string()))?;
            let Some(entry) = entry else { break };
            let content = at + tar.position();
            let behind = content.checked_add(entry.size).filter(|end| *end <= length);
            let behind = behind.ok_or_else(|| refuse("it ends in the middle of a file".into()))?;
            if count == ENTRIES_MAX {
                return Err(refuse(format!("it holds more than {ENTRIES_MAX} files")).into());
            }
            at = behind.next_multiple_of(BLOCK);
            let path = String::from_utf8_lossy(&entry.path);
            let path = path.strip_prefix("./").unwrap_or(&path);
            if entry.kind != Kind::Regular {
                continue;
            }
            if path == "index.json" && entry.size <= DOCUMENT_LEN_MAX {
                let mut bytes = Vec::new();
                tar.read_to_end(&mut bytes).map_err(|error| refuse(error.to_string()))?;
                index = Some(bytes);
            } else if let Some(digest) = blob_name(path) {
                blobs.insert(digest, (content, entry.size));
            }
        }
        let index = index.ok_or_else(|| refuse("it has no index.json".into()))?;
        let index = match Document::parse(&index, None)? {
            Document::Index(instances) => instances,
            Document::Manifest(_) => return Err(refuse("its index.json is no index".into()).into()),
        };
        Ok(Self { path: shown, source, blobs, index })
    }

    /// The image of that name, or the only one.
    pub(super) fn find(&self, name: Option<&str>) -> Result<Descriptor, Error> {
        let named =
            |instance: &&Instance| name.is_none_or(|name| instance.name.as_deref() == Some(name));
        let mut found = self.index.iter().filter(named);
        match (found.next(), found.next(), name) {
            (Some(one), None, _) => Ok(one.descriptor.clone()),
            (Some(_), Some(_), _) => {
                Err(self.refuse("it holds several images: name one, as in oci-archive:FILE:NAME"))
            }
            (None, _, Some(name)) => Err(self.refuse(&format!("it holds no image named {name:?}"))),
            (None, _, None) => Err(self.refuse("it holds no image")),
        }
    }

    pub(super) fn blob(&self, descriptor: &Descriptor) -> Result<Box<dyn ByteStream>, Error> {
        let found = self.blobs.get(&descriptor.digest);
        let (at, len) =
            found.ok_or_else(|| self.refuse(&format!("it has no blob {}", descriptor.digest)))?;
        Ok(self.source.open(*at, Some(at + len)))
    }

    fn refuse(&self, because: &str) -> Error {
        ContainerImageError::Archive { path: self.path.clone(), because: because.to_owned() }.into()
    }
}

/// `blobs/sha256/…`
fn blob_name(path: &str) -> Option<Checksum> {
    let (algorithm, hex) = path.strip_prefix("blobs/")?.split_once('/')?;
    digest(&format!("{algorithm}:{hex}")).ok()
}

/// A file from a position on.
struct FileAt<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FileAt<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
