//! Disks of oVirt, by its image transfers: the engine gives a ticket, the image server of a host gives the bytes.
//!
//! ```text
//! Engine ── log in, find disk or snapshot, begin a transfer ──► ticket
//!   └─ Session ── kept alive, woken up, always ended
//! image server ── extents, then ranges over several connections (the engine of web sources)
//! ```

mod engine;
mod extents;
mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::Engine;
use pipeline::{ByteStream, Extent, Source, SourceError, SourceFacts};
use serde::Deserialize;
use session::{Keeper, Session};

use crate::error::Error;
use crate::secret::{RedactedUrl, Secret};
use crate::stage::{Checkpoints, StageSource, StopFlag};
use crate::web::{HttpOptions, HttpSource};

/// Longer lists of extents are refused.
const EXTENTS_LEN_MAX: usize = 64 << 20;
/// A refused ticket is renewed so often, without one new byte, before that is believed.
const RENEWALS_MAX: u32 = 3;

/// Which disk of which engine.
#[derive(Clone, Debug)]
pub struct ImageioSettings {
    /// Of the engine's interface: `https://engine/ovirt-engine/api`.
    pub endpoint: String,
    /// `admin@internal`.
    pub username: String,
    pub password: Secret,
    pub disk_id: String,
    /// Which state of it, since which other.
    pub checkpoints: Checkpoints,
    /// Whom to trust, how patient to be, how many connections to make.
    pub http: HttpOptions,
    /// Ends the import, with the transfer tidied up.
    pub stop: StopFlag,
    /// How long to wait for what.
    pub intervals: Intervals,
}

/// How long to wait for what. The default is what oVirt's clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Between two looks at a transfer that is not ready.
    pub poll: Duration,
    /// Before a retry for a disk that is locked.
    pub locked: Duration,
    /// Without a byte: then the ticket is extended.
    pub keep: Duration,
    /// Without progress of any kind: then it is an error.
    pub give_up: Duration,
    /// Between two attempts to end a transfer.
    pub end: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            locked: Duration::from_secs(15),
            keep: Duration::from_secs(30),
            give_up: Duration::from_secs(600),
            end: Duration::from_secs(2),
        }
    }
}

/// Begins the transfer of a disk, of one of its snapshots, or of what has changed between two of them.
///
/// # Errors
/// When the engine cannot be reached or refuses, the disk stays locked, or it is stopped. A transfer that had begun
/// is ended then.
pub fn imageio(settings: &ImageioSettings) -> Result<StageSource, Error> {
    let ImageioSettings { disk_id, checkpoints, http, .. } = settings;
    let engine = Engine::login(settings)?;
    let subject = engine.subject(disk_id, checkpoints.current.as_deref())?;
    let is_delta = checkpoints.current.is_some() && checkpoints.previous.is_some();
    let format = if is_delta { "cow" } else { "raw" };
    let name = format!("oVirt disk {disk_id}");
    let session = Session::start_transfer(engine, &subject, format, settings, &name)?;

    #[derive(Default, Deserialize)]
    struct Abilities {
        #[serde(default)]
        features: Vec<String>,
        max_readers: Option<usize>,
    }
    let abilities: Abilities =
        match session.engine().fetch("OPTIONS", session.url(), None, 64 << 10) {
            Ok(answer) => serde_json::from_slice(&answer.body).unwrap_or_default(),
            Err(Error::Refused { .. }) => Abilities::default(), // an old server has none
            Err(error) => return Err(error),
        };
    let connections = abilities.max_readers.unwrap_or(1).clamp(1, http.streams_max.max(1));
    let http = HttpOptions { auth: None, streams_max: connections, ..http.clone() };
    let bytes = HttpSource::connect_unchanging(session.url().as_str(), &http)?;
    let facts = SourceFacts { name, validator: None, ..bytes.facts().clone() };
    let knows_extents = abilities.features.iter().any(|feature| feature == "extents");
    let extents = match facts.length.filter(|_| knows_extents && !is_delta) {
        None => None,
        Some(size) => {
            let mut url = session.url().clone();
            if let Ok(mut path) = url.path_segments_mut() {
                path.push("extents");
            }
            let list = session.engine().fetch("GET", &url, None, EXTENTS_LEN_MAX)?;
            let answer = |because| Error::Answer { url: RedactedUrl::from(&url), because };
            Some(extents::parse(&list.body, size).map_err(answer)?)
        }
    };
    let session = Arc::new(session);
    let keeper = Keeper::start(Arc::clone(&session))?;
    let bytes = Arc::new(bytes);
    let source =
        ImageioSource { facts, extents, is_disk: !is_delta, bytes, _keeper: keeper, session };
    let delta = if is_delta { checkpoints.delta(true) } else { None };
    Ok(StageSource { source: Arc::new(source), delta, info: None })
}

/// A disk that is being transferred.
struct ImageioSource {
    facts: SourceFacts,
    /// Where the server knows them.
    extents: Option<Vec<Extent>>,
    is_disk: bool,
    bytes: Arc<HttpSource>,
    // Dropped in this order: nothing is kept alive any more when the session ends.
    _keeper: Keeper,
    session: Arc<Session>,
}

impl Source for ImageioSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        Box::new(ImageioStream {
            stream: self.bytes.open(at, end),
            bytes: Arc::clone(&self.bytes),
            session: Arc::clone(&self.session),
            at,
            end,
            renewals: 0,
        })
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        const AT_ONCE: usize = 4096;
        let Some(all) = &self.extents else { return Ok(None) };
        let first = all.partition_point(|extent| extent.range.end <= at);
        let inside = all[first..].iter().take_while(|extent| extent.range.start < end);
        let cut = inside.take(AT_ONCE).map(|extent| Extent {
            range: extent.range.start.max(at)..extent.range.end.min(end),
            kind: extent.kind,
        });
        Ok(Some(cut.collect()))
    }

    fn is_disk(&self) -> bool {
        self.is_disk
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.bytes.limit_receive_memory(bytes);
    }
}

/// Bytes of a web server, with a ticket that may have to be renewed.
struct ImageioStream {
    stream: Box<dyn ByteStream>,
    bytes: Arc<HttpSource>,
    session: Arc<Session>,
    at: u64,
    end: Option<u64>,
    /// Since the last byte.
    renewals: u32,
}

impl ByteStream for ImageioStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            self.session.check()?;
            match self.stream.next() {
                Ok(Some(bytes)) => {
                    self.at += bytes.len() as u64;
                    self.renewals = 0;
                    self.session.moved(bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    let can_start_here = self.bytes.facts().ranges || self.at == 0;
                    let again = can_start_here && self.renewals < RENEWALS_MAX;
                    if !(again && is_refused_ticket(&*error)) {
                        return Err(error);
                    }
                    self.renewals += 1;
                    tracing::info!("the ticket is refused at byte {}; renewing it", self.at);
                    self.session.wake()?;
                    self.stream = self.bytes.open(self.at, self.end);
                }
            }
        }
    }
}

fn is_refused_ticket(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let status = error.downcast_ref::<Error>();
    matches!(status, Some(Error::Status { status: 401 | 403 | 404 | 409 | 410, .. }))
}
