//! A long part over as many connections as it takes. It begins as one request for everything; when the reader waits for
//! the network most of the time, the rest is cut into segments that are fetched in parallel and passed on in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pace::{Interval, Pace};
use super::part::{Part, ProgressOf};
use super::{Direct, Sink, TransferSettings, TransferStop};
use crate::web::queue::Feed;

/// The receive memory holds so many segments more than there are connections: one that is done early starts the next. More
/// would be shorter, and each connection waits for a response per segment.
const SPARE_SEGMENTS: u64 = 1;
/// Smaller segments would cost a request each for little.
const SEGMENT_MIN: u64 = 64 << 10;
/// What is left is not divided into smaller segments.
const LAST_SEGMENT_MIN: u64 = 1 << 20;

/// A part this long is fetched in segments from the beginning if the server is far away. To begin again would cost a shorter one
/// more than it brings.
const FAR_LEN_MIN: u64 = 16 << 20;

/// Brings `at..end`.
pub(super) struct Parallel<'a> {
    settings: Arc<TransferSettings>,
    /// The first byte that the reader does not have.
    at: u64,
    end: u64,
    feed: &'a Feed,
    meter: Mutex<Meter>,
}

/// Measures, and concludes at the end of each interval.
struct Meter {
    pace: Pace,
    interval: Duration,
    /// When the first request was sent.
    requested: Instant,
    /// When the interval began.
    started: Instant,
    bytes: u64,
    /// What the reader had waited before the interval.
    waited: Duration,
    /// Bytes come, or will without another request: a connection that is slow or stalls is not one that failed.
    is_receiving: bool,
    /// From the first request to its first byte.
    response_time: Option<Duration>,
    /// [`FAR_LEN_MIN`].
    is_long: bool,
}

impl<'a> Parallel<'a> {
    pub(super) fn new(settings: Arc<TransferSettings>, at: u64, end: u64, feed: &'a Feed) -> Self {
        let meter = Meter {
            pace: Pace::new(settings.streams_max),
            interval: settings.pace_interval,
            requested: Instant::now(),
            started: Instant::now(),
            bytes: 0,
            waited: Duration::ZERO,
            is_receiving: false,
            response_time: None,
            is_long: end - at >= FAR_LEN_MIN,
        };
        Self { settings, at, end, feed, meter: Mutex::new(meter) }
    }

    pub(super) async fn transfer(&mut self) -> Result<(), TransferStop> {
        while self.at < self.end {
            if self.streams() > 1 {
                self.run_segments().await?;
            } else {
                self.run_single().await?;
            }
        }
        Ok(())
    }

    /// The number of connections there should be.
    fn streams(&self) -> usize {
        self.meter.lock().pace.streams()
    }

    /// One request for all that is left; until its end, or until more connections are wanted.
    async fn run_single(&mut self) -> Result<(), TransferStop> {
        let settings = Arc::clone(&self.settings);
        let (at, end, allowed_by) = (self.at, self.end, ProgressOf::AnyPart);
        let mut part = Part { settings: &settings, at, end, allowed_by };
        let mut sink = SingleSink { feed: self.feed, meter: &self.meter, sent: 0 };
        let result = tokio::select! {
            result = part.transfer(&mut sink) => result,
            () = more_are_wanted(&self.meter, self.feed) => Err(TransferStop::Unwanted),
        };
        // What the part has read may not have been sent.
        self.at += sink.sent;
        match result {
            Err(TransferStop::Unwanted) if self.streams() > 1 => Ok(()),
            result => result,
        }
    }

    /// Segments in parallel; until the end, or until one connection is thought to be enough.
    async fn run_segments(&mut self) -> Result<(), TransferStop> {
        let mut workers = SegmentWorkers::new(&self.settings);
        let mut segments: VecDeque<Segment> = VecDeque::new();
        let mut requested = self.at;
        loop {
            let streams = self.streams();
            workers.resize(streams);
            let memory = self.settings.receive_limit.bytes() as u64;
            let parts = streams as u64 + SPARE_SEGMENTS;
            let fair = (self.end - requested).div_ceil(parts).max(LAST_SEGMENT_MIN);
            let segment_len = (memory / parts).min(fair).max(SEGMENT_MIN);
            let queued = self.feed.held() as u64;
            // Requested and not yet consumed: what waits for the segment at the front is in memory.
            let fits = |requested| requested - self.at + queued + segment_len <= memory;
            while streams > 1 && requested < self.end && (segments.is_empty() || fits(requested)) {
                let end = self.end.min(requested + segment_len);
                segments.push_back(workers.request(requested, end));
                requested = end;
            }
            let Some(front) = segments.front_mut() else { return Ok(()) };
            let left = self.meter.lock().left();
            let Ok(received) = timeout(left, front.pieces.recv()).await else {
                self.meter.lock().count(workers.take_received(), self.feed);
                continue;
            };
            match received {
                Some(bytes) => {
                    self.at += bytes.len() as u64;
                    self.meter.lock().count(workers.take_received(), self.feed);
                    self.feed.send(bytes).await?;
                }
                None if self.at == front.end => {
                    segments.pop_front();
                    self.feed.flush();
                }
                // Not every server accepts so many requests at once. Any other failure is reported by the one
                // connection that is left.
                None => {
                    tracing::debug!(
                        "segment {}-{} failed; continuing with one connection",
                        self.at,
                        front.end
                    );
                    self.meter.lock().pace.settle_for_one();
                    return Ok(());
                }
            }
        }
    }
}

impl Meter {
    /// Until the end of the interval.
    fn left(&self) -> Duration {
        let response_time = self.response_time.unwrap_or_default();
        self.pace.interval(self.interval, response_time).saturating_sub(self.started.elapsed())
    }

    /// 0 bytes: none came for a while.
    fn count(&mut self, bytes: usize, feed: &Feed) {
        if self.response_time.is_none() && bytes > 0 {
            let response_time = self.requested.elapsed();
            self.response_time = Some(response_time);
            if self.is_long {
                self.pace.start(response_time);
            }
            self.restart(feed.reader_waited());
        }
        self.bytes += bytes as u64;
        self.is_receiving |= bytes > 0;
        if !self.left().is_zero() {
            return;
        }
        let elapsed = self.started.elapsed();
        let waited = feed.reader_waited();
        let interval =
            Interval { bytes: self.bytes, elapsed, waited: waited.saturating_sub(self.waited) };
        let before = self.pace.streams();
        self.pace.after(&interval);
        let after = self.pace.streams();
        if before != after {
            let rate = interval.bytes as f64 / elapsed.as_secs_f64() / 1e6;
            tracing::debug!("{rate:.1} MB/s with {before} connections; continuing with {after}");
        }
        self.restart(waited);
    }

    /// Begins an interval. `waited`: what the reader has waited before it.
    fn restart(&mut self, waited: Duration) {
        (self.started, self.bytes, self.waited) = (Instant::now(), 0, waited);
    }
}

/// Ends when more than one connection is wanted although nothing comes: a server that limits each connection may send a lot
/// and then nothing for a while.
async fn more_are_wanted(meter: &Mutex<Meter>, feed: &Feed) {
    loop {
        let left = meter.lock().left();
        tokio::time::sleep(left).await;
        let mut meter = meter.lock();
        if meter.is_receiving {
            meter.count(0, feed);
        } else {
            meter.restart(feed.reader_waited());
        }
        if meter.pace.streams() > 1 {
            return;
        }
    }
}

/// Straight to the reader, until more connections are wanted.
struct SingleSink<'a> {
    feed: &'a Feed,
    meter: &'a Mutex<Meter>,
    /// Bytes that the reader has, or will have.
    sent: u64,
}

impl Sink for SingleSink<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransferStop> {
        let len = bytes.len();
        self.feed.send(bytes).await?;
        self.sent += len as u64;
        let mut meter = self.meter.lock();
        meter.count(len, self.feed);
        if meter.pace.streams() > 1 { Err(TransferStop::Unwanted) } else { Ok(()) }
    }

    fn poll_reader_waits(&self, context: &mut Context<'_>) -> bool {
        Direct(self.feed).poll_reader_waits(context)
    }

    fn flush(&self) {
        self.meter.lock().is_receiving = false;
        self.feed.flush();
    }
}

/// A segment that was requested.
struct Segment {
    /// Bounded by the segment's length. Ends early if it failed.
    pieces: UnboundedReceiver<Bytes>,
    end: u64,
}

/// What a worker is to fetch.
struct SegmentRequest {
    at: u64,
    end: u64,
    pieces: UnboundedSender<Bytes>,
}

/// The tasks that fetch segments, one connection each. Dropped, they give up.
struct SegmentWorkers {
    settings: Arc<TransferSettings>,
    requests: UnboundedSender<SegmentRequest>,
    waiting: Arc<tokio::sync::Mutex<UnboundedReceiver<SegmentRequest>>>,
    tasks: JoinSet<()>,
    count: Arc<WorkerCount>,
    /// Bytes of all segments since they were last counted. The reader has few of them: the others wait for the front segment.
    received: Arc<AtomicUsize>,
}

/// How many workers there are, and how many there should be.
#[derive(Default)]
struct WorkerCount {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl WorkerCount {
    /// Whether one of those present is too many: it is then no longer counted.
    fn retire_if_too_many(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        let fewer = |present: usize| (present > wanted).then(|| present - 1);
        self.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }
}

impl SegmentWorkers {
    fn new(settings: &Arc<TransferSettings>) -> Self {
        let (requests, waiting) = unbounded_channel();
        Self {
            settings: Arc::clone(settings),
            requests,
            waiting: Arc::new(tokio::sync::Mutex::new(waiting)),
            tasks: JoinSet::new(),
            count: Arc::default(),
            received: Arc::default(),
        }
    }

    fn take_received(&self) -> usize {
        self.received.swap(0, Ordering::Relaxed)
    }

    fn resize(&mut self, size: usize) {
        self.count.wanted.store(size, Ordering::Relaxed);
        while self.count.present.load(Ordering::Relaxed) < size {
            self.count.present.fetch_add(1, Ordering::Relaxed);
            let fetcher = Fetcher {
                settings: Arc::clone(&self.settings),
                waiting: Arc::clone(&self.waiting),
                count: Arc::clone(&self.count),
                received: Arc::clone(&self.received),
            };
            self.tasks.spawn(fetcher.run());
        }
    }

    fn request(&self, at: u64, end: u64) -> Segment {
        let (sender, pieces) = unbounded_channel();
        // Its receiver is ours: it cannot have gone.
        let _ = self.requests.send(SegmentRequest { at, end, pieces: sender });
        Segment { pieces, end }
    }
}

/// One of the tasks.
struct Fetcher {
    settings: Arc<TransferSettings>,
    waiting: Arc<tokio::sync::Mutex<UnboundedReceiver<SegmentRequest>>>,
    count: Arc<WorkerCount>,
    received: Arc<AtomicUsize>,
}

impl Fetcher {
    async fn run(self) {
        while !self.count.retire_if_too_many() {
            let request = self.waiting.lock().await.recv().await;
            let Some(SegmentRequest { at, end, pieces }) = request else { return };
            let mut sink = SegmentSink { pieces, received: &self.received };
            let allowed_by = ProgressOf::ThisPart;
            let mut part = Part { settings: &self.settings, at, end, allowed_by };
            // A failure shows in what is missing.
            if let Err(TransferStop::Failed(error)) = part.transfer(&mut sink).await {
                tracing::debug!("{error}");
            }
        }
    }
}

/// Kept until its turn comes.
struct SegmentSink<'a> {
    pieces: UnboundedSender<Bytes>,
    received: &'a AtomicUsize,
}

impl Sink for SegmentSink<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransferStop> {
        self.received.fetch_add(bytes.len(), Ordering::Relaxed);
        self.pieces.send(bytes).map_err(|_| TransferStop::Unwanted)
    }

    fn poll_reader_waits(&self, _: &mut Context<'_>) -> bool {
        false // whole pieces: a few bytes would cost as much
    }
}
