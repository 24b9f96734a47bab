//! A long part over as many connections as it takes. It begins as one request for everything; when the reader waits for
//! the network most of the time, the rest is cut into segments that are fetched side by side and handed over in order.

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
use super::{Direct, Sink, Stop, Terms};
use crate::web::queue::Feed;

/// Segments for each connection that fit into the receive memory: a connection that is done early starts the next one.
const SEGMENTS_PER_STREAM: u64 = 2;
/// Smaller segments would cost a request each for little.
const SEGMENT_MIN: u64 = 64 << 10;

/// Brings `at..end`.
pub(super) struct Parallel<'a> {
    terms: Arc<Terms>,
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
    pub(super) fn new(terms: Arc<Terms>, at: u64, end: u64, feed: &'a Feed) -> Self {
        let meter = Meter {
            pace: Pace::new(terms.streams_max),
            interval: terms.pace_interval,
            started: Instant::now(),
            bytes: 0,
            waited: Duration::ZERO,
        };
        Self { terms, at, end, feed, meter }
    }

    pub(super) async fn run(&mut self) -> Result<(), Stop> {
        while self.at < self.end {
            if self.meter.pace.streams() > 1 {
                self.together().await?;
            } else {
                self.alone().await?;
            }
        }
        Ok(())
    }

    /// One request for all that is left; until its end, or until more connections are wanted.
    async fn alone(&mut self) -> Result<(), Stop> {
        let terms = Arc::clone(&self.terms);
        let mut part = Part { terms: &terms, at: self.at, end: self.end };
        let mut sink = Alone { feed: self.feed, meter: &mut self.meter };
        let result = part.run(&mut sink).await;
        self.at = part.at;
        match result {
            Err(Stop::Unwanted) if self.meter.pace.streams() > 1 => Ok(()),
            result => result,
        }
    }

    /// Segments side by side; until the end, or until one connection is thought to be enough.
    async fn together(&mut self) -> Result<(), Stop> {
        let mut crew = Crew::new(&self.terms);
        let mut segments: VecDeque<Segment> = VecDeque::new();
        let mut ordered = self.at;
        loop {
            let streams = self.meter.pace.streams();
            crew.resize(streams);
            let memory = self.terms.receive_limit.bytes() as u64;
            let segment_len = (memory / (streams as u64 * SEGMENTS_PER_STREAM)).max(SEGMENT_MIN);
            let queued = self.feed.held() as u64;
            // Requested and not yet consumed: what waits for the segment at the front is in memory.
            let fits = |ordered| ordered - self.at + queued + segment_len <= memory;
            while streams > 1 && ordered < self.end && (segments.is_empty() || fits(ordered)) {
                let end = self.end.min(ordered + segment_len);
                segments.push_back(crew.order(ordered, end));
                ordered = end;
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
                // Not every server likes to be asked for so much at once. If it is something else, the one connection
                // that is left will say so.
                None => {
                    tracing::debug!("segment {}-{} failed; going on with one", self.at, front.end);
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
            tracing::debug!("{rate:.1} MB/s with {before} connections; going on with {after}");
        }
        (self.started, self.bytes, self.waited) = (Instant::now(), 0, waited);
    }
}

/// Straight to the reader, until more connections are wanted.
struct Alone<'a> {
    feed: &'a Feed,
    meter: &'a mut Meter,
}

impl Sink for Alone<'_> {
    async fn put(&mut self, bytes: Bytes) -> Result<(), Stop> {
        self.meter.count(bytes.len(), self.feed);
        self.feed.send(bytes).await?;
        if self.meter.pace.streams() > 1 { Err(Stop::Unwanted) } else { Ok(()) }
    }

    fn poll_hungry(&self, context: &mut Context<'_>) -> bool {
        Direct(self.feed).poll_hungry(context)
    }

    fn flush(&self) {
        self.feed.flush();
    }
}

/// A segment that was ordered.
struct Segment {
    /// Bounded by the segment's length. Ends early if it failed.
    pieces: UnboundedReceiver<Bytes>,
    end: u64,
}

/// What a worker is to fetch.
struct Order {
    at: u64,
    end: u64,
    pieces: UnboundedSender<Bytes>,
}

/// The tasks that fetch segments, one connection each. Dropped, they give up.
struct Crew {
    terms: Arc<Terms>,
    orders: UnboundedSender<Order>,
    waiting: Arc<Mutex<UnboundedReceiver<Order>>>,
    workers: JoinSet<()>,
    heads: Arc<Heads>,
}

/// How many workers there are, and how many there should be.
#[derive(Default)]
struct Heads {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl Heads {
    /// Whether one of those present is too many: it is then no longer counted.
    fn leave(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        let fewer = |present: usize| (present > wanted).then(|| present - 1);
        self.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }
}

impl Crew {
    fn new(terms: &Arc<Terms>) -> Self {
        let (orders, waiting) = unbounded_channel();
        Self {
            terms: Arc::clone(terms),
            orders,
            waiting: Arc::new(Mutex::new(waiting)),
            workers: JoinSet::new(),
            heads: Arc::default(),
        }
    }

    fn resize(&mut self, size: usize) {
        self.heads.wanted.store(size, Ordering::Relaxed);
        while self.heads.present.load(Ordering::Relaxed) < size {
            self.heads.present.fetch_add(1, Ordering::Relaxed);
            let (terms, waiting) = (Arc::clone(&self.terms), Arc::clone(&self.waiting));
            self.workers.spawn(work(Arc::clone(&self.heads), terms, waiting));
        }
    }

    fn order(&self, at: u64, end: u64) -> Segment {
        let (sender, pieces) = unbounded_channel();
        // Its receiver is ours: it cannot have gone.
        let _ = self.orders.send(Order { at, end, pieces: sender });
        Segment { pieces, end }
    }
}

async fn work(heads: Arc<Heads>, terms: Arc<Terms>, waiting: Arc<Mutex<UnboundedReceiver<Order>>>) {
    while !heads.leave() {
        let order = waiting.lock().await.recv().await;
        let Some(Order { at, end, pieces }) = order else { return };
        // A failure shows in what is missing.
        if let Err(Stop::Failed(error)) =
            (Part { terms: &terms, at, end }).run(&mut Aside(pieces)).await
        {
            tracing::debug!("{error}");
        }
    }
}

/// Kept until its turn comes.
struct Aside(UnboundedSender<Bytes>);

impl Sink for Aside {
    async fn put(&mut self, bytes: Bytes) -> Result<(), Stop> {
        self.0.send(bytes).map_err(|_| Stop::Unwanted)
    }

    fn poll_hungry(&self, _: &mut Context<'_>) -> bool {
        false // whole pieces: a few bytes would cost as much
    }
}
