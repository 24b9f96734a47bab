//! One transfer from its start to its end: started, renewed, resumed when paused, and always finalized.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use url::Url;

use super::engine::{Engine, Subject, Transfer};
use super::{ImageioSettings, Intervals};
use crate::error::Error;
use crate::secret::RedactedUrl;
use crate::stage::StopFlag;

/// Requested periodically, so that the transfer does not time out as unused.
const SIGN_OF_LIFE: &str = "bytes=0-511";
/// How often the end is tried.
const END_TRIES: u32 = 10;

/// A transfer of a disk.
pub(super) struct Session {
    engine: Engine,
    id: String,
    name: String,
    url: Url,
    intervals: Intervals,
    stop: StopFlag,
    moved: AtomicU64,
    /// Nothing came for too long.
    stalled: AtomicBool,
    /// One at a time wakes it up.
    waking: Mutex<()>,
}

impl Session {
    /// Begins a transfer and waits until bytes can be requested.
    pub(super) fn start_transfer(
        engine: Engine,
        subject: &Subject,
        format: &str,
        settings: &ImageioSettings,
        name: &str,
    ) -> Result<Self, Error> {
        let ImageioSettings { intervals, stop, .. } = settings;
        let mut waited = Duration::ZERO;
        let transfer = loop {
            stop.check(name)?;
            if let Some(transfer) = engine.start_transfer(subject, format)? {
                break transfer;
            }
            if waited >= intervals.give_up {
                let because = format!("the disk {name} stays locked");
                return Err(refused(settings, because));
            }
            tracing::info!("{name} is locked; retrying");
            stop.sleep(intervals.locked, name)?;
            waited += intervals.locked;
        };
        let nowhere = Url::parse("http://none.invalid/").expect("this is an address");
        let mut session = Self {
            engine,
            id: transfer.id.clone(),
            name: name.to_owned(),
            url: nowhere,
            intervals: intervals.clone(),
            stop: stop.clone(),
            moved: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            waking: Mutex::new(()),
        };
        // From here on whatever happens ends the transfer: the session is dropped.
        let transfer = session.wait_until_ready()?;
        let url = transfer.transfer_url.and_then(|url| Url::parse(&url).ok());
        session.url = url.ok_or_else(|| refused(settings, "a transfer without address".into()))?;
        Ok(session)
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where the bytes are.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// A stream has received bytes.
    pub(super) fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.stop.check(&self.name)?;
        if self.stalled.load(Ordering::Relaxed) {
            let because = format!("no byte came for {} seconds", self.intervals.give_up.as_secs());
            return Err(Error::Refused { url: RedactedUrl::from(&self.url), because });
        }
        Ok(())
    }

    /// The ticket was refused: it may have expired, or the transfer was paused.
    pub(super) fn wake(&self) -> Result<(), Error> {
        let _one = self.waking.lock();
        self.wait_until_ready()?;
        self.engine.act(&self.id, "extend")
    }

    fn wait_until_ready(&self) -> Result<Transfer, Error> {
        let mut waited = Duration::ZERO;
        loop {
            self.stop.check(&self.name)?;
            let ended = |what: &str| {
                let because = format!("the transfer of {} {what}", self.name);
                Error::Refused { url: RedactedUrl::from(&self.url), because }
            };
            let transfer = self.engine.transfer(&self.id)?.ok_or_else(|| ended("is gone"))?;
            match transfer.phase.as_str() {
                "transferring" => return Ok(transfer),
                "paused_system" | "paused_user" => self.engine.act(&self.id, "resume")?,
                "initializing" | "resuming" | "unknown" | "" => {}
                phase => return Err(ended(&format!("has ended ({})", phase.escape_debug()))),
            }
            if waited >= self.intervals.give_up {
                return Err(ended("does not begin"));
            }
            self.stop.sleep(self.intervals.poll, &self.name)?;
            waited += self.intervals.poll;
        }
    }

    /// Ends the transfer in the way that fits its phase. What has ended by itself is left alone.
    fn end(&self) {
        for attempt in 0..END_TRIES {
            if attempt > 0 {
                std::thread::sleep(self.intervals.end); // also after a stop: that is what it is for
            }
            let action = match self.engine.transfer(&self.id) {
                Ok(None) => return,
                Ok(Some(transfer)) => match transfer.phase.as_str() {
                    "transferring" => "finalize",
                    "initializing" | "paused_system" | "paused_user" | "resuming" | "unknown"
                    | "" => "cancel",
                    _ => return,
                },
                Err(error) => {
                    tracing::warn!("cannot see what became of the transfer: {error}");
                    continue;
                }
            };
            match self.engine.act(&self.id, action) {
                Ok(()) => return,
                Err(error) => tracing::warn!("cannot {action} the transfer: {error}"),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

fn refused(settings: &ImageioSettings, because: String) -> Error {
    Error::Refused { url: RedactedUrl::of_text(&settings.endpoint), because }
}

/// Keeps a ticket from expiring while nothing is read, and notices when that lasts too long. Ends when it is dropped.
pub(super) struct Keeper {
    thread: Option<JoinHandle<()>>,
    end: Option<Sender<()>>,
}

impl Keeper {
    pub(super) fn start(session: Arc<Session>) -> Result<Self, Error> {
        let (end, ended) = channel();
        let interval = session.intervals.keep;
        let thread = std::thread::Builder::new().name("ticket".into()).spawn(move || {
            let (mut before, mut idle) = (0, Duration::ZERO);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(interval) {
                let moved = session.moved.load(Ordering::Relaxed);
                idle = if moved == before { idle + interval } else { Duration::ZERO };
                before = moved;
                if idle.is_zero() {
                    continue;
                }
                if idle >= session.intervals.give_up {
                    session.stalled.store(true, Ordering::Relaxed);
                }
                let kept = session.engine.act(&session.id, "extend").and_then(|()| {
                    let url = &session.url;
                    session.engine.fetch("GET", url, Some(SIGN_OF_LIFE), 1 << 20).map(drop)
                });
                if let Err(error) = kept {
                    tracing::debug!("cannot extend the ticket: {error}");
                }
            }
        });
        let thread = thread
            .map_err(|error| Error::Option { what: format!("cannot start a thread: {error}") })?;
        Ok(Self { thread: Some(thread), end: Some(end) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of it is no reason for another
        }
    }
}
