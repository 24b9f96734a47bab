//! A stream as the pipeline reads it: first what is in memory, then what a task brings.

use std::sync::Arc;

use bytes::Bytes;
use pipeline::{ByteStream, SourceError};
use tokio::task::AbortHandle;

use super::queue::{Drain, Received, queue};
use super::{Shared, transfer};
use crate::error::Error;

/// Bytes that a lone stream queues at most, to cover pauses of a disk.
const QUEUE_ALONE_MAX: usize = 4 << 20;
/// The same for one of several streams.
const QUEUE_PART_MAX: usize = 1 << 20;

/// Bytes from one position to another.
pub(super) struct HttpStream {
    shared: Arc<Shared>,
    state: StreamState,
}

enum StreamState {
    /// Nothing has been requested yet.
    New {
        at: u64,
        end: Option<u64>,
    },
    /// What the first response brought has been passed on, up to here.
    AfterHead {
        at: u64,
        end: Option<u64>,
    },
    Running {
        drain: Drain,
        task: AbortHandle,
    },
    Complete,
    Failed,
}

impl HttpStream {
    pub(super) fn new(shared: Arc<Shared>, at: u64, end: Option<u64>) -> Self {
        Self { shared, state: StreamState::New { at, end } }
    }

    fn fail(&mut self, error: Error) -> Result<Option<Bytes>, SourceError> {
        self.state = StreamState::Failed;
        Err(Box::new(error))
    }

    fn start(&self, at: u64, end: Option<u64>) -> StreamState {
        let settings = Arc::clone(&self.shared.settings);
        let runtime = self.shared.runtime.runtime();
        let length = self.shared.facts.length.unwrap_or(u64::MAX);
        let limit = settings.receive_limit.clone();
        // Half for a lone stream: the rest is for segments that several connections fetch for it.
        let (feed, drain) = match end {
            Some(_) => queue(limit, settings.streams_max, QUEUE_PART_MAX),
            None => queue(limit, 2, QUEUE_ALONE_MAX),
        };
        let task = if !self.shared.facts.ranges {
            let begun = self.shared.whole.lock().take();
            runtime.spawn(transfer::whole(settings, begun, feed))
        } else if let Some(end) = end {
            runtime.spawn(transfer::part(settings, at, end.min(length), feed))
        } else {
            runtime.spawn(transfer::long_part(settings, at, length, feed))
        };
        StreamState::Running { drain, task: task.abort_handle() }
    }
}

impl ByteStream for HttpStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            match &self.state {
                &StreamState::New { at, end } => {
                    let facts = &self.shared.facts;
                    if !facts.ranges && (at, end) != (0, None) {
                        let name = facts.name.clone();
                        return self.fail(Error::OnePass { name });
                    }
                    let head = part_of(&self.shared.settings.head, at, end);
                    let at = at + head.len() as u64;
                    self.state = StreamState::AfterHead { at, end };
                    if !head.is_empty() {
                        return Ok(Some(head));
                    }
                }
                &StreamState::AfterHead { at, end } => {
                    let length = self.shared.facts.length;
                    let stop = end.into_iter().chain(length).min();
                    let complete = stop.is_some_and(|stop| at >= stop);
                    self.state = if complete { StreamState::Complete } else { self.start(at, end) };
                }
                StreamState::Running { drain, .. } => match drain.next() {
                    Received::Bytes(bytes) => return Ok(Some(bytes)),
                    Received::Complete => self.state = StreamState::Complete,
                    Received::Failed(error) => return self.fail(error),
                    Received::Lost => {
                        let name = self.shared.facts.name.clone();
                        return self.fail(Error::Vanished { name });
                    }
                },
                StreamState::Complete => return Ok(None),
                StreamState::Failed => {
                    let name = self.shared.facts.name.clone();
                    return Err(Box::new(Error::Vanished { name }));
                }
            }
        }
    }
}

impl Drop for HttpStream {
    fn drop(&mut self) {
        if let StreamState::Running { task, .. } = &self.state {
            task.abort(); // it may be waiting for the network, and would not notice otherwise
        }
    }
}

/// What of `at..end` lies within `head`, the bytes from 0 on.
fn part_of(head: &Bytes, at: u64, end: Option<u64>) -> Bytes {
    let clip = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(head.len());
    let (start, stop) = (clip(at), clip(end.unwrap_or(u64::MAX)));
    if start < stop { head.slice(start..stop) } else { Bytes::new() }
}
