//! Imports one upload into the disk, from its first byte to its last, over any number of connections.
//!
//! The import runs on its own thread and waits for bytes while there is no connection, so an upload of any format and
//! compression resumes after an interruption. The import ends with the process. A raw disk in a file is resumed by the
//! next process, from the pipeline's journal; the bytes that were probed are stored for that. All other uploads start
//! again: a decoder's state is not saved, and a device has no place for a journal.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use contract::Checksum;
use pipeline::{ImageKind, Options, Progress, SourceFormat, Target, image_kind};

use super::ResumableRefusal;
use super::upload_record::{self, UploadRecord};
use super::upload_source::{ChunkReceiver, UploadSource};
use crate::error::UploadError;
use crate::requests::import_disk;
use crate::volume_slot::{Completed, VolumeLease};

/// The input of the thread. It holds no reference to a request, so it ends when the sender is dropped.
pub struct DiskImport {
    pub record: UploadRecord,
    pub target: Target,
    pub format: SourceFormat,
    /// `None`: a device.
    pub record_path: Option<PathBuf>,
    /// How often received bytes are synced.
    pub checkpoint_every: Duration,
    /// Expected checksum, once a client sends it.
    pub checksum: Arc<OnceLock<Checksum>>,
    /// Set for an OVA, which is not read completely. See `ResumableUpload::expect_checksum`.
    pub is_unchecked: Arc<AtomicBool>,
    pub progress: Arc<Progress>,
    pub lease: VolumeLease,
}

impl DiskImport {
    /// Returns once the volume is complete and durable. `kept`: the first bytes, from the record of an earlier process.
    ///
    /// # Errors
    /// If the upload is abandoned, or the import fails.
    pub fn import_disk(
        self,
        mut chunks: ChunkReceiver,
        kept: Option<Bytes>,
    ) -> Result<(), UploadError> {
        let Self {
            record,
            target,
            format,
            record_path,
            checkpoint_every,
            checksum,
            is_unchecked,
            progress,
            lease,
        } = self;
        let name = || "the upload".to_owned();
        let resume = kept.is_some();
        let head = match kept {
            Some(head) => head,
            None => chunks.head().map_err(|source| {
                UploadError::Import(pipeline::Error::Source { name: name(), source })
            })?,
        };
        let nature = match format {
            SourceFormat::Detect => image_kind(&head, head.len() as u64 == record.length),
            SourceFormat::Raw => ImageKind::Disk,
        };
        if nature == ImageKind::Ova {
            is_unchecked.store(true, Ordering::SeqCst);
            if checksum.get().is_some() {
                return Err(ResumableRefusal::Unchecked.into());
            }
        }
        let record_path = record_path.filter(|_| nature == ImageKind::Disk);
        if let Some(path) = record_path.as_ref().filter(|_| !resume) {
            record.store(path, &head).map_err(UploadError::Record)?;
        }
        let validator = record_path.is_some().then(|| record.id.clone());
        let source = UploadSource::new(head, chunks, validator);
        let options = Options {
            format,
            resume,
            checkpoint_every,
            checksum_later: (nature != ImageKind::Ova).then_some(checksum),
            ..Options::default()
        };
        let imported = import_disk(&source, &target, &options, &progress);
        let is_over = match &imported {
            Ok(_) => true,
            Err(UploadError::Import(error)) => !error.is_worth_another_try(),
            Err(_) => false,
        };
        if let Some(path) = record_path.filter(|_| is_over) {
            upload_record::remove(&path).map_err(UploadError::Record)?;
        }
        lease.complete(Completed { cloned: false, preallocated: imported? });
        Ok(())
    }
}
