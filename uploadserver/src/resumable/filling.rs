//! What makes a disk of an upload, from its first byte to its last, over any number of connections.
//!
//! All of it is one import on a thread of its own, which waits for bytes while there is no connection: so whatever its
//! format and compression, an upload goes on after a cut where it was. A process that ends takes the import with it. A raw
//! disk in a file is then gone on with by the next process, by the engine's own journal; for that, what was read of it in
//! order to know that it is one is kept. Everything else begins anew: what a decoder knows is not kept, and a device has no
//! place for a journal.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use contract::Checksum;
use pipeline::{ImageKind, Options, Progress, SourceFormat, Target, image_kind};

use super::Refusal;
use super::inlet::{Inflow, Parts};
use super::record::{self, Record};
use crate::error::UploadError;
use crate::slot::{Claim, Completed};
use crate::upload::import;

/// Everything that the thread needs. It knows nothing of those who send, and so ends when they are gone.
pub struct Filling {
    /// The upload.
    pub record: Record,
    /// The volume.
    pub target: Target,
    /// How the format of the image is determined.
    pub format: SourceFormat,
    /// Where the record is kept, if the volume has a place for it.
    pub kept_at: Option<PathBuf>,
    /// How often what has come is made durable.
    pub checkpoint_every: Duration,
    /// What all of it hashes to, once a client says so.
    pub checksum: Arc<OnceLock<Checksum>>,
    /// Set when nothing of it will be compared.
    pub is_unchecked: Arc<AtomicBool>,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// The right to do it.
    pub claim: Claim,
}

impl Filling {
    /// Returns once the volume is complete and durable. `kept`: an earlier process has had the beginning, which was this.
    ///
    /// # Errors
    /// When the upload is given up, or does not become a disk.
    pub fn run(self, mut inflow: Inflow, kept: Option<Bytes>) -> Result<(), UploadError> {
        let Self {
            record,
            target,
            format,
            kept_at,
            checkpoint_every,
            checksum,
            is_unchecked,
            progress,
            claim,
        } = self;
        let name = || "the upload".to_owned();
        let resume = kept.is_some();
        let head = match kept {
            Some(head) => head,
            None => inflow.head().map_err(|source| {
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
                return Err(Refusal::Unchecked.into());
            }
        }
        let kept_at = kept_at.filter(|_| nature == ImageKind::Disk);
        if let Some(path) = kept_at.as_ref().filter(|_| !resume) {
            record.store(path, &head).map_err(UploadError::Record)?;
        }
        let validator = kept_at.is_some().then(|| record.id.clone());
        let source = Parts::new(head, inflow, validator);
        let options = Options {
            format,
            resume,
            checkpoint_every,
            checksum_later: (nature != ImageKind::Ova).then_some(checksum),
            ..Options::default()
        };
        let imported = import(&source, &target, &options, &progress);
        let is_over = match &imported {
            Ok(_) => true,
            Err(UploadError::Import(error)) => !error.is_worth_another_try(),
            Err(_) => false,
        };
        if let Some(path) = kept_at.filter(|_| is_over) {
            record::remove(&path).map_err(UploadError::Record)?;
        }
        claim.finish(Completed { cloned: false, preallocated: imported? });
        Ok(())
    }
}
