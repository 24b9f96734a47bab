//! From a task that receives to a thread that decodes: bytes in order, limited by their number.
//!
//! The sender waits while the queue is full, so that a slow disk slows the socket. The reader is woken once for many
//! small chunks: when enough is queued, or when the sender has nothing more to send at present.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::Error;
use crate::receive_limit::ReceiveLimit;

/// A sleeping reader is woken when this many bytes are queued.
const WAKE_AT: usize = 512 << 10;

/// A queue that takes bytes until it holds its part of `limit`, one of `streams`, and at most `max`. The last piece may
/// exceed that.
pub(super) fn queue(limit: ReceiveLimit, streams: usize, max: usize) -> (Feed, Drain) {
    let shared =
        Arc::new(Shared { limit, streams, max, state: Mutex::default(), ready: Condvar::new() });
    (Feed { shared: Arc::clone(&shared) }, Drain { shared })
}

struct Shared {
    limit: ReceiveLimit,
    streams: usize,
    max: usize,
    state: Mutex<State>,
    /// The reader waits here.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    held: usize,
    end: Option<QueueEnd>,
    reader_waits: bool,
    reader_gone: bool,
    /// How long the reader has found nothing, before its present wait.
    reader_waited: Duration,
    /// The beginning of its present wait.
    waits_since: Option<Instant>,
    /// Of a sender that waits for space.
    sender_waker: Option<Waker>,
    /// Of a sender that has little, and waits until the reader waits for it.
    reader_waker: Option<Waker>,
}

enum QueueEnd {
    Complete,
    Failed(Error),
    /// The sender was dropped before it knew.
    Lost,
}

pub(super) enum Received {
    Bytes(Bytes),
    Complete,
    Failed(Error),
    Lost,
}

/// The reader has been dropped.
#[derive(Debug)]
pub(super) struct ReaderGone;

/// The sending half. Dropped without [`Feed::complete`], it leaves an error behind, never an end.
pub(super) struct Feed {
    shared: Arc<Shared>,
}

pub(super) struct Drain {
    shared: Arc<Shared>,
}

impl Shared {
    /// Bytes that may be held. The limit may change while the queue is in use.
    fn allowance(&self) -> usize {
        self.limit.part_of(self.streams, self.max)
    }

    /// A panic elsewhere cannot leave the state half changed: every change is a few assignments.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn wake_reader(&self, state: &mut State) {
        if state.reader_waits {
            state.reader_waits = false;
            self.ready.notify_one();
        }
    }

    fn finish(&self, end: QueueEnd) {
        let mut state = self.lock();
        if state.end.is_none() {
            state.end = Some(end);
            self.wake_reader(&mut state);
        }
    }
}

impl Feed {
    /// Adds `bytes` once there is space. Empty ones are dropped.
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), ReaderGone> {
        let mut bytes = Some(bytes);
        std::future::poll_fn(|context| self.poll_send(context, &mut bytes)).await
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        bytes: &mut Option<Bytes>,
    ) -> Poll<Result<(), ReaderGone>> {
        let mut state = self.shared.lock();
        if state.reader_gone {
            return Poll::Ready(Err(ReaderGone));
        }
        if state.held >= self.shared.allowance() {
            state.sender_waker = Some(context.waker().clone());
            self.shared.wake_reader(&mut state);
            return Poll::Pending;
        }
        if let Some(bytes) = bytes.take().filter(|bytes| !bytes.is_empty()) {
            state.held += bytes.len();
            state.pieces.push_back(bytes);
            if state.held >= WAKE_AT.min(self.shared.allowance()) {
                self.shared.wake_reader(&mut state);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Nothing follows at present: wakes a reader that waits for what there is. Returns whether it keeps waiting,
    /// or has gone; otherwise the task will be woken when it waits.
    pub(super) fn poll_reader_waits(&self, context: &mut Context<'_>) -> bool {
        let mut state = self.shared.lock();
        let waits = state.pieces.is_empty() && (state.reader_waits || state.reader_gone);
        if !waits {
            state.reader_waker = Some(context.waker().clone());
            self.shared.wake_reader(&mut state);
        }
        waits
    }

    /// Bytes that the reader has not taken.
    pub(super) fn held(&self) -> usize {
        self.shared.lock().held
    }

    /// How long the reader has waited so far, for all its waiting together.
    pub(super) fn reader_waited(&self) -> Duration {
        let state = self.shared.lock();
        let present = state.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        state.reader_waited + present
    }

    /// Nothing follows at present: wakes a reader that waits for what there is.
    pub(super) fn flush(&self) {
        let mut state = self.shared.lock();
        if !state.pieces.is_empty() {
            self.shared.wake_reader(&mut state);
        }
    }

    pub(super) fn complete(self) {
        self.shared.finish(QueueEnd::Complete);
    }

    /// No more can be had.
    pub(super) fn fail(self, error: Error) {
        self.shared.finish(QueueEnd::Failed(error));
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.finish(QueueEnd::Lost);
    }
}

impl Drain {
    /// Blocks for the next piece. An end is found once; after it there is only [`Received::Lost`].
    pub(super) fn next(&self) -> Received {
        let mut state = self.shared.lock();
        loop {
            if let Some(bytes) = state.pieces.pop_front() {
                state.held -= bytes.len();
                // Half empty, so that the sender can add more than one chunk each time it wakes.
                let sender = if state.held <= self.shared.allowance() / 2 {
                    state.sender_waker.take()
                } else {
                    None
                };
                drop(state);
                sender.into_iter().for_each(Waker::wake);
                return Received::Bytes(bytes);
            }
            match state.end.replace(QueueEnd::Lost) {
                Some(QueueEnd::Complete) => return Received::Complete,
                Some(QueueEnd::Failed(error)) => return Received::Failed(error),
                Some(QueueEnd::Lost) => return Received::Lost,
                None => state.end = None,
            }
            state.reader_waits = true;
            if let Some(reader_waker) = state.reader_waker.take() {
                reader_waker.wake();
            }
            let since = Instant::now();
            state.waits_since = Some(since);
            self.shared.ready.wait(&mut state);
            state.waits_since = None;
            state.reader_waited += since.elapsed();
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.reader_gone = true;
        state.pieces.clear();
        let wakers = [state.sender_waker.take(), state.reader_waker.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;

    /// The result of `future`, if it is ready without waiting.
    fn value_if_ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn bytes(drain: &Drain) -> usize {
        match drain.next() {
            Received::Bytes(bytes) => bytes.len(),
            _ => panic!("no bytes"),
        }
    }

    fn queue(allowance: usize) -> (Feed, Drain) {
        super::queue(ReceiveLimit::default(), 1, allowance)
    }

    #[test]
    fn the_sender_waits_while_the_allowance_is_used_up() {
        let (feed, drain) = queue(10);
        assert!(value_if_ready(feed.send(Bytes::from_static(&[1; 6]))).is_some());
        assert!(value_if_ready(feed.send(Bytes::from_static(&[2; 6]))).is_some());
        assert!(value_if_ready(feed.send(Bytes::from_static(&[3; 6]))).is_none());
        assert_eq!((bytes(&drain), bytes(&drain)), (6, 6));
        assert!(value_if_ready(feed.send(Bytes::from_static(&[3; 6]))).is_some());
    }

    #[test]
    fn pieces_come_out_in_order_before_the_end() {
        let (feed, drain) = queue(10);
        for piece in [&b"ab"[..], b"", b"c"] {
            assert!(value_if_ready(feed.send(Bytes::copy_from_slice(piece))).is_some());
        }
        feed.complete();
        assert_eq!((bytes(&drain), bytes(&drain)), (2, 1));
        assert!(matches!(drain.next(), Received::Complete));
        assert!(matches!(drain.next(), Received::Lost));
    }

    #[test]
    fn a_sender_that_vanishes_leaves_no_end_behind() {
        let (feed, drain) = queue(10);
        drop(feed);
        assert!(matches!(drain.next(), Received::Lost));
    }

    #[test]
    fn a_sender_without_a_reader_stops() {
        let (feed, drain) = queue(1);
        assert!(value_if_ready(feed.send(Bytes::from_static(b"a"))).is_some());
        drop(drain);
        assert!(matches!(
            value_if_ready(feed.send(Bytes::from_static(b"b"))),
            Some(Err(ReaderGone))
        ));
    }

    #[test]
    fn waiting_reader_wakes_a_sender_with_few_bytes() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (feed, drain) = queue(100);
        runtime.spawn(async move {
            std::future::poll_fn(|context| {
                if feed.poll_reader_waits(context) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            feed.send(Bytes::from_static(b"crumb")).await.unwrap();
            feed.flush();
            std::future::pending::<()>().await;
        });
        assert_eq!(bytes(&drain), 5);
    }

    #[test]
    fn a_waiting_reader_is_woken_by_a_flush_and_by_the_end() {
        let (feed, drain) = queue(1 << 20);
        let reader =
            std::thread::spawn(move || (bytes(&drain), matches!(drain.next(), Received::Complete)));
        assert!(value_if_ready(feed.send(Bytes::from_static(b"a"))).is_some());
        feed.flush();
        feed.complete();
        assert_eq!(reader.join().unwrap(), (1, true));
    }

    #[test]
    fn bytes_pass_from_a_task_to_a_thread_through_a_narrow_queue() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (feed, drain) = queue(7);
        runtime.spawn(async move {
            for n in 0..10_000_u32 {
                feed.send(Bytes::copy_from_slice(&n.to_le_bytes())).await.unwrap();
            }
            feed.complete();
        });
        for n in 0..10_000_u32 {
            let Received::Bytes(bytes) = drain.next() else { panic!("ended early") };
            assert_eq!(bytes[..], n.to_le_bytes());
        }
        assert!(matches!(drain.next(), Received::Complete));
    }
}
