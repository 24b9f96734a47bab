//! Where a stream goes: its disk to a device, or all that is in it to a folder.

use std::fs::File;
use std::path::Path;

use clonestream::extents::{DATA_MAX, Entry, EntryKind};
use pipeline::{Disk, DiskOptions, Sink, Staging, Target};

use super::broken;
use crate::clone::DISK_NAME;
use crate::error::UploadError;

/// A volume that is being filled. Dropped before it [is finished](Self::finish), it holds nothing that looks complete.
pub enum Place {
    Device(Device),
    Folder(Folder),
}

/// Where the content of an entry is written.
pub enum Content<'a> {
    /// By several threads.
    Disk(&'a Disk),
    /// A small file, or one below a folder; it is all zeroes.
    File(&'a File),
}

impl Place {
    /// A device, unless there is a folder.
    pub fn open(target: &Target, folder: Option<&Path>) -> Result<Self, UploadError> {
        match folder {
            None => Ok(Self::Device(Device { target: target.clone(), disk: None })),
            Some(folder) => {
                let staging = Staging::open(folder, target.preallocate);
                let name = target.path.file_name().unwrap_or_default();
                Ok(Self::Folder(Folder {
                    current: None,
                    staging: staging.map_err(UploadError::Import)?,
                    disk_name: name.as_encoded_bytes().to_vec(),
                }))
            }
        }
    }

    /// The place for the content of an entry, or nothing where it has none or is not wanted. An entry that was begun
    /// already goes on.
    pub fn begin(&mut self, index: u64, entry: &Entry) -> Result<Option<Content<'_>>, UploadError> {
        match self {
            Self::Device(device) => device.begin(index, entry),
            Self::Folder(folder) => folder.begin(index, entry),
        }
    }

    /// Returns once all that was written would survive a power cut.
    pub fn sync(&self) -> Result<(), UploadError> {
        let disk = match self {
            Self::Device(device) => device.disk.as_ref().map(|(_, disk)| disk),
            Self::Folder(folder) => {
                folder.current.as_ref().and_then(|current| match &current.file {
                    Written::Disk(disk) => Some(&**disk),
                    Written::File(_) => None,
                })
            }
        };
        disk.map_or(Ok(()), Sink::sync).map_err(UploadError::Target)?;
        match self {
            Self::Device(_) => Ok(()),
            Self::Folder(folder) => folder.staging.sync().map_err(UploadError::Import),
        }
    }

    /// Makes all of it durable and visible.
    pub fn finish(self) -> Result<(), UploadError> {
        match self {
            Self::Device(device) => {
                let (_, disk) = device.disk.ok_or(UploadError::NoDisk)?;
                disk.finish().map_err(UploadError::Import)
            }
            Self::Folder(folder) => folder.finish(),
        }
    }
}

/// A device takes the disk, and nothing that lies beside it.
pub struct Device {
    target: Target,
    /// The disk, and which of the entries it is.
    disk: Option<(u64, Disk)>,
}

impl Device {
    fn begin(&mut self, index: u64, entry: &Entry) -> Result<Option<Content<'_>>, UploadError> {
        if !self.wants(index, entry) {
            return Ok(None);
        }
        let disk = match self.disk.take() {
            Some((_, disk)) => disk,
            None => {
                let Target { path, preallocate, .. } = &self.target;
                let options =
                    DiskOptions { size: entry.size, preallocate: *preallocate, resume: false };
                Disk::open(path, &options).map_err(UploadError::Import)?
            }
        };
        let (_, disk) = self.disk.insert((index, disk));
        Ok(Some(Content::Disk(disk)))
    }

    /// Whether an entry is the disk: the first one, if there are several.
    fn wants(&self, index: u64, entry: &Entry) -> bool {
        let is_disk = match entry.kind {
            EntryKind::Disk => true,
            EntryKind::Regular => memchr::memmem::find(&entry.path, DISK_NAME).is_some(),
            EntryKind::Directory | EntryKind::Symlink(_) | EntryKind::HardLink(_) => false,
        };
        is_disk && self.disk.as_ref().is_none_or(|(known, _)| *known == index)
    }
}

/// A folder takes everything. Nothing in it has its name before all of it is durable.
pub struct Folder {
    current: Option<Current>,
    staging: Staging,
    /// Of a source that was a device.
    disk_name: Vec<u8>,
}

/// The entry whose content comes.
struct Current {
    index: u64,
    entry: Entry,
    file: Written,
}

enum Written {
    Disk(Box<Disk>),
    File(File),
}

impl Folder {
    fn begin(&mut self, index: u64, entry: &Entry) -> Result<Option<Content<'_>>, UploadError> {
        match &self.current {
            Some(current) if current.index == index => {
                if current.entry != *entry {
                    return Err(broken("an entry is not the one that was begun"));
                }
            }
            _ => {
                self.complete()?;
                let file = self.make(entry).map_err(UploadError::Import)?;
                self.current = file.map(|file| Current { index, entry: entry.clone(), file });
            }
        }
        Ok(self.current.as_ref().map(|current| match &current.file {
            Written::Disk(disk) => Content::Disk(disk),
            Written::File(file) => Content::File(file),
        }))
    }

    /// What is made a second time, because a connection broke right behind it, is the same as before.
    fn make(&mut self, entry: &Entry) -> Result<Option<Written>, pipeline::Error> {
        let Entry { path, kind, size, mode, modified: _ } = entry;
        let staging = &mut self.staging;
        if !Staging::takes(path) {
            return Ok(None);
        }
        let file = match kind {
            EntryKind::Directory => staging.make_folder(path, *mode).map(|()| None)?,
            EntryKind::Symlink(target) => staging.make_symlink(path, target).map(|()| None)?,
            EntryKind::HardLink(first) => staging.make_hard_link(path, first).map(|()| None)?,
            EntryKind::Disk => {
                Some(Written::Disk(Box::new(staging.make_disk(&self.disk_name, *size)?)))
            }
            EntryKind::Regular if *size > DATA_MAX as u64 && !path.contains(&b'/') => {
                Some(Written::Disk(Box::new(staging.make_disk(path, *size)?)))
            }
            EntryKind::Regular => Some(Written::File(staging.make_file(path, *mode, *size)?)),
        };
        Ok(file)
    }

    /// The entry has all its content.
    fn complete(&mut self) -> Result<(), UploadError> {
        let Some(Current { entry, file, .. }) = self.current.take() else { return Ok(()) };
        let Written::Disk(disk) = file else { return Ok(()) };
        disk.finish().map_err(UploadError::Import)?;
        match entry.kind {
            EntryKind::Regular => {
                self.staging.set_mode(&entry.path, entry.mode).map_err(UploadError::Import)
            }
            _ => Ok(()), // a device has no mode that a file should have
        }
    }

    fn finish(mut self) -> Result<(), UploadError> {
        self.complete()?;
        self.staging.finish(&self.disk_name).map_err(UploadError::Import)
    }
}
