//! A long part over as many connections as it takes. It begins as one request for everything; when the reader waits for
//! the network most of the time, the rest is cut into segments that are fetched in parallel and passed on in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::pace::{Interval, Pace};
use super::part::Part;
use super::{Direct, Sink, TransferSettings, TransferStop};
use crate::web::queue::Feed;

/// Segments for each connection that fit into the receive memory: a connection that is done early starts the next one.
const SEGMENTS_PER_STREAM: u64 = 2;
/// Smaller segments would cost a request each for little.
const SEGMENT_MIN: u64 = 64 << 10;

/// Brings `at..end`.
pub(super) struct Parallel<'a> {
    settings: Arc<TransferSettings>,
    /// The first byte that the reader does not have.
    at: u64,
    end: u64,
    feed: &'a Feed,
    meter: Meter,
}

/// Measures, and concludes at the end of each interval.
struct Meter {
    pace: Pace,
    interval: Duration,
    started: Instant,
    bytes: u64,
    /// What the reader had waited before the interval.
    waited: Duration,
}

impl<'a> Parallel<'a> {
    pub(super) fn new(settings: Arc<TransferSettings>, at: u64, end: u64, feed: &'a Feed) -> Self {
        let meter = Meter {
            pace: Pace::new(settings.streams_max),
            interval: settings.pace_interval,
            started: Instant::now(),
            bytes: 0,
            waited: Duration::ZERO,
        };
        Self { settings, at, end, feed, meter }
    }

    pub(super) async fn transfer(&mut self) -> Result<(), TransferStop> {
        while self.at < self.end {
            if self.meter.pace.streams() > 1 {
                self.run_segments().await?;
            } else {
                self.run_single().await?;
            }
        }
        Ok(())
    }

    /// One request for all that is left; until its end, or until more connections are wanted.
    async fn run_single(&mut self) -> Result<(), TransferStop> {
        let settings = Arc::clone(&self.settings);
        let mut part = Part { settings: &settings, at: self.at, end: self.end };
        let mut sink = SingleSink { feed: self.feed, meter: &mut self.meter };
        let result = part.transfer(&mut sink).await;
        self.at = part.at;
        match result {
            Err(TransferStop::Unwanted) if self.meter.pace.streams() > 1 => Ok(()),
            result => result,
        }
    }

    /// Segments in parallel; until the end, or until one connection is thought to be enough.
    async fn run_segments(&mut self) -> Result<(), TransferStop> {
        let mut workers = SegmentWorkers::new(&self.settings);
        let mut segments: VecDeque<Segment> = VecDeque::new();
        let mut requested = self.at;
        loop {
            let streams = self.meter.pace.streams();
            workers.resize(streams);
            let memory = self.settings.receive_limit.bytes() as u64;
            let segment_len = (memory / (streams as u64 * SEGMENTS_PER_STREAM)).max(SEGMENT_MIN);
            let queued = self.feed.held() as u64;
            // Requested and not yet consumed: what waits for the segment at the front is in memory.
            let fits = |requested| requested - self.at + queued + segment_len <= memory;
            while streams > 1 && requested < self.end && (segments.is_empty() || fits(requested)) {
                let end = self.end.min(requested + segment_len);
                segments.push_back(workers.request(requested, end));
                requested = end;
            }
            let Some(front) = segments.front_mut() else { return Ok(()) };
            match front.pieces.recv().await {
                Some(bytes) => {
                    self.at += bytes.len() as u64;
                    self.meter.count(bytes.len(), self.feed);
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
                    self.meter.pace.settle_for_one();
                    return Ok(());
                }
            }
        }
    }
}

impl Meter {
    fn count(&mut self, bytes: usize, feed: &Feed) {
        self.bytes += bytes as u64;
        let elapsed = self.started.elapsed();
        if elapsed < self.interval {
            return;
        }
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
        (self.started, self.bytes, self.waited) = (Instant::now(), 0, waited);
    }
}

/// Straight to the reader, until more connections are wanted.
struct SingleSink<'a> {
    feed: &'a Feed,
    meter: &'a mut Meter,
}

impl Sink for SingleSink<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransferStop> {
        self.meter.count(bytes.len(), self.feed);
        self.feed.send(bytes).await?;
        if self.meter.pace.streams() > 1 { Err(TransferStop::Unwanted) } else { Ok(()) }
    }

    fn poll_reader_waits(&self, context: &mut Context<'_>) -> bool {
        Direct(self.feed).poll_reader_waits(context)
    }

    fn flush(&self) {
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
    waiting: Arc<Mutex<UnboundedReceiver<SegmentRequest>>>,
    tasks: JoinSet<()>,
    count: Arc<WorkerCount>,
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
            waiting: Arc::new(Mutex::new(waiting)),
            tasks: JoinSet::new(),
            count: Arc::default(),
        }
    }

    fn resize(&mut self, size: usize) {
        self.count.wanted.store(size, Ordering::Relaxed);
        while self.count.present.load(Ordering::Relaxed) < size {
            self.count.present.fetch_add(1, Ordering::Relaxed);
            let (settings, waiting) = (Arc::clone(&self.settings), Arc::clone(&self.waiting));
            self.tasks.spawn(fetch_segments(Arc::clone(&self.count), settings, waiting));
        }
    }

    fn request(&self, at: u64, end: u64) -> Segment {
        let (sender, pieces) = unbounded_channel();
        // Its receiver is ours: it cannot have gone.
        let _ = self.requests.send(SegmentRequest { at, end, pieces: sender });
        Segment { pieces, end }
    }
}

async fn fetch_segments(
    count: Arc<WorkerCount>,
    settings: Arc<TransferSettings>,
    waiting: Arc<Mutex<UnboundedReceiver<SegmentRequest>>>,
) {
    while !count.retire_if_too_many() {
        let request = waiting.lock().await.recv().await;
        let Some(SegmentRequest { at, end, pieces }) = request else { return };
        // A failure shows in what is missing.
        if let Err(TransferStop::Failed(error)) =
            (Part { settings: &settings, at, end }).transfer(&mut SegmentSink(pieces)).await
        {
            tracing::debug!("{error}");
        }
    }
}

/// Kept until its turn comes.
struct SegmentSink(UnboundedSender<Bytes>);

impl Sink for SegmentSink {
    async fn put(&mut self, bytes: Bytes) -> Result<(), TransferStop> {
        self.0.send(bytes).map_err(|_| TransferStop::Unwanted)
    }

    fn poll_reader_waits(&self, _: &mut Context<'_>) -> bool {
        false // whole pieces: a few bytes would cost as much
    }
}
