//! The upload of this process, and which request may continue it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use contract::Checksum;
use http_body_util::BodyExt;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Mutex, MutexGuard, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::ResumableRefusal;
use super::content_coding::ContentCoding;
use super::disk_import::DiskImport;
use super::request::UploadRequest;
use super::upload_record::{self, UploadRecord};
use super::upload_source::ChunkReceiver;
use crate::error::UploadError;
use crate::requests::ServerState;
use crate::volume_slot::{SlotUnavailable, VolumeLease};

/// The upload of this process, if there is one.
#[derive(Debug)]
pub struct ResumableUploads {
    present: Mutex<Option<Arc<ResumableUpload>>>,
    record_path: Option<PathBuf>,
    checkpoint_every: Duration,
}

pub struct ResumableUpload {
    record: UploadRecord,
    checksum: Arc<OnceLock<Checksum>>,
    /// Set by the import of an OVA, whose checksum cannot be verified.
    is_unchecked: Arc<AtomicBool>,
    /// Number of the latest request for the lease: older requests are cancelled.
    lease_number: watch::Sender<u64>,
    state: Mutex<State>,
}

enum State {
    /// From an earlier process, with the first bytes of the upload.
    Suspended(Bytes),
    Active(ActiveUpload),
    Complete,
    Failed,
}

/// A running import that waits for bytes.
struct ActiveUpload {
    /// `None`: the upload was abandoned.
    feed: Option<Sender<Bytes>>,
    /// Bytes that were passed to the import.
    offset: u64,
    since: Instant,
    import: JoinHandle<Result<(), UploadError>>,
}

impl ResumableUploads {
    /// `disk`: an earlier process may have written a part of it. `is_file`: it is not a device.
    pub fn new(disk: &Path, is_file: bool, checkpoint_every: Duration) -> Self {
        let record_path = upload_record::record_path(disk).filter(|_| is_file);
        let kept = record_path.as_deref().and_then(UploadRecord::load);
        let present = kept.map(|(record, head)| {
            tracing::info!("an interrupted upload of {} bytes can be resumed", record.length);
            ResumableUpload::new(record, State::Suspended(head))
        });
        Self { present: Mutex::new(present.map(Arc::new)), record_path, checkpoint_every }
    }

    pub async fn find(&self, id: &str) -> Option<Arc<ResumableUpload>> {
        self.present.lock().await.clone().filter(|upload| upload.id() == id)
    }

    /// The upload for the request, and whether it is new. Replaces an upload that no request is continuing.
    ///
    /// # Errors
    /// [`UploadError::SlotUnavailable`] while another upload is being continued.
    pub async fn create(
        &self,
        app: &ServerState,
        request: UploadRequest,
    ) -> Result<(Arc<ResumableUpload>, bool), UploadError> {
        let mut present = self.present.lock().await;
        if let Some(upload) = present.as_ref().filter(|upload| upload.is_for(&request)) {
            return Ok((Arc::clone(upload), false));
        }
        self.discard_if_idle(&mut present).await?;
        let lease = app.slot.acquire().map_err(UploadError::SlotUnavailable)?;
        app.interrupted_clone.discard();
        let record = UploadRecord::new(&request).map_err(UploadError::Record)?;
        let upload = ResumableUpload::new(record, State::Failed);
        *upload.state.lock().await =
            State::Active(self.start_import(app, &upload, lease, None, None));
        let upload = Arc::new(upload);
        *present = Some(Arc::clone(&upload));
        Ok((upload, true))
    }

    /// Abandons the upload in favour of another transfer.
    ///
    /// # Errors
    /// [`UploadError::SlotUnavailable`] while it is being continued.
    pub async fn discard_idle(&self) -> Result<(), UploadError> {
        self.discard_if_idle(&mut *self.present.lock().await).await
    }

    async fn discard_if_idle(
        &self,
        present: &mut Option<Arc<ResumableUpload>>,
    ) -> Result<(), UploadError> {
        if let Some(upload) = &*present {
            if !upload.suspend_if_idle(Duration::ZERO).await {
                return Err(UploadError::SlotUnavailable(SlotUnavailable::Busy));
            }
            *present = None;
        }
        let record_path = self.record_path.as_deref().map_or(Ok(()), upload_record::remove);
        record_path.map_err(UploadError::Record)
    }

    /// Suspends an upload that no request has continued for `idle`. The next process may resume it.
    pub async fn suspend_idle(&self, idle: Duration) {
        let present = self.present.lock().await.clone();
        if let Some(upload) = present {
            upload.suspend_if_idle(idle).await;
        }
    }

    /// Suspends the upload, also during a request. The next process may resume it.
    pub async fn suspend(&self) {
        let present = self.present.lock().await.clone();
        if let Some(upload) = present {
            upload.state.lock().await.end_import().await;
        }
    }

    fn start_import(
        &self,
        app: &ServerState,
        upload: &ResumableUpload,
        lease: VolumeLease,
        kept: Option<Bytes>,
        begin: Option<oneshot::Sender<u64>>,
    ) -> ActiveUpload {
        let import = DiskImport {
            record: upload.record.clone(),
            target: app.target.clone(),
            format: app.format,
            record_path: self.record_path.clone(),
            checkpoint_every: self.checkpoint_every,
            checksum: Arc::clone(&upload.checksum),
            is_unchecked: Arc::clone(&upload.is_unchecked),
            progress: app.meter.start_transfer(),
            lease,
        };
        let (feed, chunks) = ChunkReceiver::new(upload.record.length, begin);
        let import = tokio::task::spawn_blocking(move || import.import_disk(chunks, kept));
        ActiveUpload { feed: Some(feed), offset: 0, since: Instant::now(), import }
    }
}

impl ResumableUpload {
    fn new(record: UploadRecord, state: State) -> Self {
        let checksum = record.checksum().map_or_else(OnceLock::new, OnceLock::from);
        let checksum = Arc::new(checksum);
        let (is_unchecked, lease_number) = (Arc::default(), watch::Sender::new(0));
        Self { record, checksum, is_unchecked, lease_number, state: Mutex::new(state) }
    }

    pub fn id(&self) -> &str {
        &self.record.id
    }

    pub fn length(&self) -> u64 {
        self.record.length
    }

    /// Sets the expected checksum.
    ///
    /// # Errors
    /// [`ResumableRefusal::Digest`] if it differs from an earlier one, [`ResumableRefusal::Unchecked`] for an OVA.
    pub fn expect_checksum(&self, checksum: Checksum) -> Result<(), ResumableRefusal> {
        if *self.checksum.get_or_init(|| checksum) != checksum {
            return Err(ResumableRefusal::Digest);
        }
        // Store the checksum, then load `is_unchecked`; `DiskImport::import_disk` stores `is_unchecked`, then loads the
        // checksum. With SeqCst, at least one of the two sees the other's store.
        if self.is_unchecked.load(Ordering::SeqCst) {
            Err(ResumableRefusal::Unchecked)
        } else {
            Ok(())
        }
    }

    /// The permission to continue the upload. It is withdrawn from an earlier request, which is probably one whose
    /// connection broke without this side noticing.
    ///
    /// # Errors
    /// [`ResumableRefusal::Overtaken`] if a later request has come.
    pub async fn lease(&self) -> Result<UploadLease<'_>, ResumableRefusal> {
        let mut number = 0;
        self.lease_number.send_modify(|lease_number| {
            *lease_number += 1;
            number = *lease_number;
        });
        let state = self.state.lock().await;
        let mut lease_number = self.lease_number.subscribe();
        if *lease_number.borrow_and_update() != number {
            return Err(ResumableRefusal::Overtaken);
        }
        Ok(UploadLease { upload: self, state, lease_number })
    }

    fn is_for(&self, request: &UploadRequest) -> bool {
        let has_failed = || {
            let state = self.state.try_lock(); // locked while a request continues it: not failed
            state.is_ok_and(|state| matches!(*state, State::Failed))
        };
        self.record.is_for(request) && !has_failed()
    }

    /// False while a request continues it, or did within `idle`.
    async fn suspend_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if matches!(&*state, State::Active(active) if active.since.elapsed() < idle) {
            return false;
        }
        state.end_import().await;
        true
    }
}

/// The ID is secret.
impl fmt::Debug for ResumableUpload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ResumableUpload")
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}

impl State {
    /// Ends an import that lacks bytes; waits for one that has them all.
    async fn end_import(&mut self) {
        if let Self::Active(active) = self {
            active.feed = None;
            let ended = (&mut active.import).await;
            *self = if matches!(ended, Ok(Ok(()))) { Self::Complete } else { Self::Failed };
        }
    }
}

/// The permission to continue an upload.
pub struct UploadLease<'a> {
    upload: &'a ResumableUpload,
    state: MutexGuard<'a, State>,
    lease_number: watch::Receiver<u64>,
}

impl UploadLease<'_> {
    /// The offset of the next byte. If the upload has all its bytes, waits until it is complete.
    ///
    /// # Errors
    /// If the upload has failed.
    pub async fn offset(&mut self, app: &ServerState) -> Result<u64, UploadError> {
        if let State::Suspended(head) = &*self.state {
            let lease = app.slot.acquire().map_err(UploadError::SlotUnavailable)?;
            let (begin, begun) = oneshot::channel();
            let active =
                app.uploads.start_import(app, self.upload, lease, Some(head.clone()), Some(begin));
            // If the request ends while waiting here, the upload stays suspended.
            let offset = begun.await.unwrap_or_default();
            *self.state = State::Active(ActiveUpload { offset, ..active });
        }
        let length = self.upload.length();
        match &*self.state {
            State::Active(active) if active.offset < length && !active.has_ended() => {
                Ok(active.offset)
            }
            _ => self.wait_for_end().await.map(|()| length),
        }
    }

    /// Appends `body`, and returns the offset of the next byte. After the last byte, waits until the volume is
    /// complete.
    ///
    /// # Errors
    /// If the connection ends or another request takes over: the received bytes count. If the import fails: the upload
    /// is over.
    pub async fn append(
        &mut self,
        body: &mut Body,
        mut coding: ContentCoding,
        silence_max: Duration,
    ) -> Result<u64, UploadError> {
        let length = self.upload.length();
        let State::Active(active) = &mut *self.state else { return Ok(length) };
        let feed = active.feed.clone().ok_or(ResumableRefusal::Gone)?;
        loop {
            let read = timeout(silence_max, next_bytes(body));
            let read = tokio::select! {
                _ = self.lease_number.changed() => return Err(ResumableRefusal::Overtaken.into()),
                read = read => read,
            };
            let Ok(read) = read else {
                let seconds = silence_max.as_secs();
                let because = format!("the client sent nothing for {seconds} s");
                return Err(ResumableRefusal::Broken(because.into()).into());
            };
            let Some(bytes) = read else { break };
            let mut bytes = bytes.map_err(|error| ResumableRefusal::Broken(error.into()))?;
            while let Some(piece) = coding.next(&mut bytes)? {
                let count = piece.len() as u64;
                if count > length - active.offset {
                    return Err(ResumableRefusal::TooMuch.into());
                }
                let sent = tokio::select! {
                    _ = self.lease_number.changed() => return Err(ResumableRefusal::Overtaken.into()),
                    sent = feed.send(piece) => sent,
                };
                if sent.is_err() {
                    drop(feed);
                    return self.wait_for_end().await.map(|()| length);
                }
                (active.offset, active.since) = (active.offset + count, Instant::now());
            }
        }
        let offset = active.offset;
        if offset == length {
            self.wait_for_end().await?;
        } else {
            coding.check_end()?;
        }
        Ok(offset)
    }

    /// Waits for the import, and returns its result.
    async fn wait_for_end(&mut self) -> Result<(), UploadError> {
        match &mut *self.state {
            State::Active(active) => {
                let ended = (&mut active.import).await.unwrap_or(Err(UploadError::Panicked));
                *self.state = if ended.is_ok() { State::Complete } else { State::Failed };
                ended
            }
            State::Complete => Ok(()),
            State::Suspended(_) | State::Failed => Err(ResumableRefusal::Gone.into()),
        }
    }
}

impl ActiveUpload {
    /// The import accepts no more bytes.
    fn has_ended(&self) -> bool {
        self.feed.as_ref().is_none_or(Sender::is_closed)
    }
}

/// Skips trailers.
async fn next_bytes(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        match body.frame().await? {
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}
