//! Where a stream is written: its disk to a device, or all its entries to a directory.

use std::fs::File;
use std::path::Path;

use clonestream::extents::{DATA_MAX, Entry, EntryKind};
use pipeline::{Disk, DiskOptions, Sink, Staging, Target};

use super::malformed_stream;
use crate::clone_body::DISK_NAME;
use crate::error::UploadError;

/// A volume that is being written. Dropped before [`Self::finish`], it holds nothing that looks complete.
pub enum CloneDestination {
    Device(DeviceDestination),
    Directory(DirectoryDestination),
}

pub enum EntryTarget<'a> {
    /// Written by several threads.
    Disk(&'a Disk),
    /// A small file, or one in a subdirectory. It is all zeroes.
    File(&'a File),
}

impl CloneDestination {
    pub fn open(target: &Target, directory: Option<&Path>) -> Result<Self, UploadError> {
        match directory {
            None => Ok(Self::Device(DeviceDestination { target: target.clone(), disk: None })),
            Some(directory) => {
                let staging = Staging::open(directory, target.preallocate);
                let name = target.path.file_name().unwrap_or_default();
                Ok(Self::Directory(DirectoryDestination {
                    current: None,
                    staging: staging.map_err(UploadError::Import)?,
                    disk_name: name.as_encoded_bytes().to_vec(),
                }))
            }
        }
    }

    /// Where the content of the entry is written. `None` for an entry without content, or one that is skipped. An entry
    /// that was started before continues.
    pub fn start_entry(
        &mut self,
        index: u64,
        entry: &Entry,
    ) -> Result<Option<EntryTarget<'_>>, UploadError> {
        match self {
            Self::Device(device) => device.start_entry(index, entry),
            Self::Directory(directory) => directory.start_entry(index, entry),
        }
    }

    /// Returns once all writes would survive a power failure.
    pub fn sync(&self) -> Result<(), UploadError> {
        let disk = match self {
            Self::Device(device) => device.disk.as_ref().map(|(_, disk)| disk),
            Self::Directory(directory) => {
                directory.current.as_ref().and_then(|current| match &current.file {
                    EntryFile::Disk(disk) => Some(&**disk),
                    EntryFile::File(_) => None,
                })
            }
        };
        disk.map_or(Ok(()), Sink::sync).map_err(UploadError::Target)?;
        match self {
            Self::Device(_) => Ok(()),
            Self::Directory(directory) => directory.staging.sync().map_err(UploadError::Import),
        }
    }

    /// Makes everything durable, then visible.
    pub fn finish(self) -> Result<(), UploadError> {
        match self {
            Self::Device(device) => {
                let (_, disk) = device.disk.ok_or(UploadError::NoDisk)?;
                disk.finish().map_err(UploadError::Import)
            }
            Self::Directory(directory) => directory.finish(),
        }
    }
}

/// A device gets the disk; other entries are skipped.
pub struct DeviceDestination {
    target: Target,
    /// The index of the disk's entry, and the disk.
    disk: Option<(u64, Disk)>,
}

impl DeviceDestination {
    fn start_entry(
        &mut self,
        index: u64,
        entry: &Entry,
    ) -> Result<Option<EntryTarget<'_>>, UploadError> {
        if !self.is_disk(index, entry) {
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
        Ok(Some(EntryTarget::Disk(disk)))
    }

    /// The first disk, if there are several.
    fn is_disk(&self, index: u64, entry: &Entry) -> bool {
        let may_be_disk = match entry.kind {
            EntryKind::Disk => true,
            EntryKind::Regular => memchr::memmem::find(&entry.path, DISK_NAME).is_some(),
            EntryKind::Directory | EntryKind::Symlink(_) | EntryKind::HardLink(_) => false,
        };
        may_be_disk && self.disk.as_ref().is_none_or(|(known, _)| *known == index)
    }
}

/// A directory gets all entries. None has its name before all of them are durable.
pub struct DirectoryDestination {
    current: Option<Current>,
    staging: Staging,
    /// For the disk of a source that is a device.
    disk_name: Vec<u8>,
}

/// The entry whose content is being received.
struct Current {
    index: u64,
    entry: Entry,
    file: EntryFile,
}

enum EntryFile {
    Disk(Box<Disk>),
    File(File),
}

impl DirectoryDestination {
    fn start_entry(
        &mut self,
        index: u64,
        entry: &Entry,
    ) -> Result<Option<EntryTarget<'_>>, UploadError> {
        match &self.current {
            Some(current) if current.index == index => {
                if current.entry != *entry {
                    return Err(malformed_stream(
                        "an entry differs from the one that was interrupted",
                    ));
                }
            }
            _ => {
                self.end_entry()?;
                let file = self.create(entry).map_err(UploadError::Import)?;
                self.current = file.map(|file| Current { index, entry: entry.clone(), file });
            }
        }
        Ok(self.current.as_ref().map(|current| match &current.file {
            EntryFile::Disk(disk) => EntryTarget::Disk(disk),
            EntryFile::File(file) => EntryTarget::File(file),
        }))
    }

    /// An entry may be created twice, after an interruption right after it; the result is the same.
    fn create(&mut self, entry: &Entry) -> Result<Option<EntryFile>, pipeline::Error> {
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
                Some(EntryFile::Disk(Box::new(staging.make_disk(&self.disk_name, *size)?)))
            }
            EntryKind::Regular if *size > DATA_MAX as u64 && !path.contains(&b'/') => {
                Some(EntryFile::Disk(Box::new(staging.make_disk(path, *size)?)))
            }
            EntryKind::Regular => Some(EntryFile::File(staging.make_file(path, *mode, *size)?)),
        };
        Ok(file)
    }

    /// Called when the current entry has all its content.
    fn end_entry(&mut self) -> Result<(), UploadError> {
        let Some(Current { entry, file, .. }) = self.current.take() else { return Ok(()) };
        let disk = match file {
            EntryFile::Disk(disk) => disk,
            EntryFile::File(file) => {
                return self.staging.finish_file(&entry.path, file).map_err(UploadError::Import);
            }
        };
        disk.finish().map_err(UploadError::Import)?;
        match entry.kind {
            EntryKind::Regular => {
                self.staging.set_mode(&entry.path, entry.mode).map_err(UploadError::Import)
            }
            _ => Ok(()), // a device has no mode for its file
        }
    }

    fn finish(mut self) -> Result<(), UploadError> {
        self.end_entry()?;
        self.staging.finish(&self.disk_name).map_err(UploadError::Import)
    }
}
