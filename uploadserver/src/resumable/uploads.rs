//! The one upload that there is, and whose turn it is to bring it on.

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

use super::Refusal;
use super::coding::Coding;
use super::filling::Filling;
use super::inlet::Inflow;
use super::record::{self, Record};
use super::request::Wish;
use crate::error::UploadError;
use crate::slot::{Claim, Taken};
use crate::upload::App;

/// The upload of this process, if there is one.
#[derive(Debug)]
pub struct Uploads {
    present: Mutex<Option<Arc<Upload>>>,
    kept_at: Option<PathBuf>,
    checkpoint_every: Duration,
}

/// An upload that can be gone on with.
pub struct Upload {
    record: Record,
    checksum: Arc<OnceLock<Checksum>>,
    /// It turned out to be something of which no checksum can be checked.
    is_unchecked: Arc<AtomicBool>,
    /// Counts who wanted to bring it on: it is the turn of whoever came last.
    turns: watch::Sender<u64>,
    state: Mutex<State>,
}

enum State {
    /// An earlier process had it; this is what it began with.
    Asleep(Bytes),
    Awake(Flow),
    Complete,
    Failed,
}

/// An import that waits for bytes.
struct Flow {
    /// `None`: it was given up.
    feed: Option<Sender<Bytes>>,
    /// Bytes that it was given.
    offset: u64,
    since: Instant,
    filling: JoinHandle<Result<(), UploadError>>,
}

impl Uploads {
    /// Into the disk at `disk`, of which an earlier process may have had a part. `is_file`: it has a folder of its own.
    pub fn new(disk: &Path, is_file: bool, checkpoint_every: Duration) -> Self {
        let kept_at = record::beside(disk).filter(|_| is_file);
        let kept = kept_at.as_deref().and_then(Record::load);
        let present = kept.map(|(record, head)| {
            tracing::info!("an upload of {} bytes can be gone on with", record.length);
            Upload::new(record, State::Asleep(head))
        });
        Self { present: Mutex::new(present.map(Arc::new)), kept_at, checkpoint_every }
    }

    /// The upload of that name.
    pub async fn find(&self, id: &str) -> Option<Arc<Upload>> {
        self.present.lock().await.clone().filter(|upload| upload.id() == id)
    }

    /// What a client wants to begin, and whether it is new. One that nobody brings on at the moment makes room for it.
    ///
    /// # Errors
    /// When another one is being brought on.
    pub async fn create(&self, app: &App, wish: Wish) -> Result<(Arc<Upload>, bool), UploadError> {
        let mut present = self.present.lock().await;
        if let Some(upload) = present.as_ref().filter(|upload| upload.is_for(&wish)) {
            return Ok((Arc::clone(upload), false));
        }
        self.clear(&mut present).await?;
        let claim = app.slot.claim().map_err(UploadError::Taken)?;
        app.half.forget();
        let record = Record::new(&wish).map_err(UploadError::Record)?;
        let upload = Upload::new(record, State::Failed);
        *upload.state.lock().await = State::Awake(self.start(app, &upload, claim, None, None));
        let upload = Arc::new(upload);
        *present = Some(Arc::clone(&upload));
        Ok((upload, true))
    }

    /// Makes room for an upload of another kind.
    ///
    /// # Errors
    /// When one is being brought on.
    pub async fn give_way(&self) -> Result<(), UploadError> {
        self.clear(&mut *self.present.lock().await).await
    }

    async fn clear(&self, present: &mut Option<Arc<Upload>>) -> Result<(), UploadError> {
        if let Some(upload) = &*present {
            if !upload.stop(Duration::ZERO).await {
                return Err(UploadError::Taken(Taken::Busy));
            }
            *present = None;
        }
        let kept_at = self.kept_at.as_deref().map_or(Ok(()), record::remove);
        kept_at.map_err(UploadError::Record)
    }

    /// Stops one that nobody has brought on for so long. Another process may go on with it.
    pub async fn rest(&self, idle: Duration) {
        let present = self.present.lock().await.clone();
        if let Some(upload) = present {
            upload.stop(idle).await;
        }
    }

    /// Stops it, whoever is at it. Another process may go on with it.
    pub async fn close(&self) {
        let present = self.present.lock().await.clone();
        if let Some(upload) = present {
            upload.state.lock().await.end().await;
        }
    }

    fn start(
        &self,
        app: &App,
        upload: &Upload,
        claim: Claim,
        kept: Option<Bytes>,
        begin: Option<oneshot::Sender<u64>>,
    ) -> Flow {
        let filling = Filling {
            record: upload.record.clone(),
            target: app.target.clone(),
            format: app.format,
            kept_at: self.kept_at.clone(),
            checkpoint_every: self.checkpoint_every,
            checksum: Arc::clone(&upload.checksum),
            is_unchecked: Arc::clone(&upload.is_unchecked),
            progress: app.meter.begin(),
            claim,
        };
        let (feed, inflow) = Inflow::new(upload.record.length, begin);
        let filling = tokio::task::spawn_blocking(move || filling.run(inflow, kept));
        Flow { feed: Some(feed), offset: 0, since: Instant::now(), filling }
    }
}

impl Upload {
    fn new(record: Record, state: State) -> Self {
        let checksum = record.checksum().map_or_else(OnceLock::new, OnceLock::from);
        let checksum = Arc::new(checksum);
        let (is_unchecked, turns) = (Arc::default(), watch::Sender::new(0));
        Self { record, checksum, is_unchecked, turns, state: Mutex::new(state) }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// Bytes of it.
    pub fn length(&self) -> u64 {
        self.record.length
    }

    /// Its bytes have to hash to this.
    ///
    /// # Errors
    /// When they were said to hash to something else, or nobody will hash them.
    pub fn expect(&self, checksum: Checksum) -> Result<(), Refusal> {
        if *self.checksum.get_or_init(|| checksum) != checksum {
            return Err(Refusal::Digest);
        }
        // Said first and asked then: whoever finds out that it is so does it the other way round.
        match self.is_unchecked.load(Ordering::SeqCst) {
            true => Err(Refusal::Unchecked),
            false => Ok(()),
        }
    }

    /// The right to bring it on, which whoever has it at the moment loses: the same client has come again, and the earlier
    /// connection is one of which only this side has not heard that it broke.
    ///
    /// # Errors
    /// When somebody has come even later.
    pub async fn turn(&self) -> Result<Turn<'_>, Refusal> {
        let mut number = 0;
        self.turns.send_modify(|turns| {
            *turns += 1;
            number = *turns;
        });
        let state = self.state.lock().await;
        let mut turns = self.turns.subscribe();
        if *turns.borrow_and_update() != number {
            return Err(Refusal::Overtaken);
        }
        Ok(Turn { upload: self, state, turns })
    }

    fn is_for(&self, wish: &Wish) -> bool {
        let has_failed = || {
            let state = self.state.try_lock(); // it has not, while somebody is at it
            state.is_ok_and(|state| matches!(*state, State::Failed))
        };
        self.record.is_for(wish) && !has_failed()
    }

    /// Stops it, unless somebody is at it, or was within that time.
    async fn stop(&self, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if matches!(&*state, State::Awake(flow) if flow.since.elapsed() < idle) {
            return false;
        }
        state.end().await;
        true
    }
}

/// Without its name, which is a secret.
impl fmt::Debug for Upload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Upload").field("length", &self.length()).finish_non_exhaustive()
    }
}

impl State {
    /// Gives up what has not got all its bytes, and waits for what has.
    async fn end(&mut self) {
        if let Self::Awake(flow) = self {
            flow.feed = None;
            let ended = (&mut flow.filling).await;
            *self = if matches!(ended, Ok(Ok(()))) { Self::Complete } else { Self::Failed };
        }
    }
}

/// The right to bring an upload on.
pub struct Turn<'a> {
    upload: &'a Upload,
    state: MutexGuard<'a, State>,
    turns: watch::Receiver<u64>,
}

impl Turn<'_> {
    /// Where the next byte belongs. An upload that has all its bytes is complete when this returns.
    ///
    /// # Errors
    /// When it has failed, possibly at this very moment.
    pub async fn offset(&mut self, app: &App) -> Result<u64, UploadError> {
        if let State::Asleep(head) = &*self.state {
            let claim = app.slot.claim().map_err(UploadError::Taken)?;
            let (begin, begun) = oneshot::channel();
            let flow = app.uploads.start(app, self.upload, claim, Some(head.clone()), Some(begin));
            // Whoever stops to wait here leaves it asleep.
            let offset = begun.await.unwrap_or_default();
            *self.state = State::Awake(Flow { offset, ..flow });
        }
        let length = self.upload.length();
        match &*self.state {
            State::Awake(flow) if flow.offset < length && !flow.is_over() => Ok(flow.offset),
            _ => self.finish().await.map(|()| length),
        }
    }

    /// Takes what is in `body` for the next bytes, and says where those after them belong. When they were the last ones, the
    /// volume is complete.
    ///
    /// # Errors
    /// When the client is interrupted or interrupts itself: what has come so far is not lost. When the upload fails: it is
    /// over then.
    pub async fn append(
        &mut self,
        body: &mut Body,
        mut coding: Coding,
        patience: Duration,
    ) -> Result<u64, UploadError> {
        let length = self.upload.length();
        let State::Awake(flow) = &mut *self.state else { return Ok(length) };
        let feed = flow.feed.clone().ok_or(Refusal::Gone)?;
        loop {
            let read = timeout(patience, next_bytes(body));
            let read = tokio::select! {
                _ = self.turns.changed() => return Err(Refusal::Overtaken.into()),
                read = read => read,
            };
            let Ok(read) = read else {
                let seconds = patience.as_secs();
                let because = format!("the client said nothing for {seconds} s");
                return Err(Refusal::Broken(because.into()).into());
            };
            let Some(bytes) = read else { break };
            let mut bytes = bytes.map_err(|error| Refusal::Broken(error.into()))?;
            while let Some(piece) = coding.next(&mut bytes)? {
                let count = piece.len() as u64;
                if count > length - flow.offset {
                    return Err(Refusal::TooMuch.into());
                }
                let sent = tokio::select! {
                    _ = self.turns.changed() => return Err(Refusal::Overtaken.into()),
                    sent = feed.send(piece) => sent,
                };
                if sent.is_err() {
                    drop(feed);
                    return self.finish().await.map(|()| length);
                }
                (flow.offset, flow.since) = (flow.offset + count, Instant::now());
            }
        }
        let offset = flow.offset;
        if offset == length {
            self.finish().await?;
        } else {
            coding.check_end()?;
        }
        Ok(offset)
    }

    /// Waits for the end of the work, and says what it came to.
    async fn finish(&mut self) -> Result<(), UploadError> {
        match &mut *self.state {
            State::Awake(flow) => {
                let ended = (&mut flow.filling).await.unwrap_or(Err(UploadError::Lost));
                *self.state = if ended.is_ok() { State::Complete } else { State::Failed };
                ended
            }
            State::Complete => Ok(()),
            State::Asleep(_) | State::Failed => Err(Refusal::Gone.into()),
        }
    }
}

impl Flow {
    /// The thread takes nothing any more.
    fn is_over(&self) -> bool {
        self.feed.as_ref().is_none_or(Sender::is_closed)
    }
}

/// Trailers are nobody's business here.
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
