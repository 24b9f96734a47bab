//! A stream as the pipeline reads it: first what is in memory, then what a task brings.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use pipeline::{ByteStream, SourceError};
use tokio::task::AbortHandle;

use super::queue::{Drain, Found, queue};
use super::{Shared, transfer};
use crate::error::Error;

/// Bytes that a lone stream queues at most, to cover pauses of a disk.
const QUEUE_ALONE_MAX: usize = 4 << 20;
/// The same for one of several streams.
const QUEUE_PART_MAX: usize = 1 << 20;

/// Bytes from one position to another.
pub(super) struct HttpStream {
    shared: Arc<Shared>,
    stage: Stage,
}

enum Stage {
    /// Nothing has been asked for yet.
    New {
        at: u64,
        end: Option<u64>,
    },
    /// What the first answer brought has been handed over, up to here.
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
        Self { shared, stage: Stage::New { at, end } }
    }

    fn fail(&mut self, error: Error) -> Result<Option<Bytes>, SourceError> {
        self.stage = Stage::Failed;
        Err(Box::new(error))
    }

    fn start(&self, at: u64, end: Option<u64>) -> Stage {
        let terms = Arc::clone(&self.shared.terms);
        let runtime = self.shared.runtime.runtime();
        let length = self.shared.facts.length.unwrap_or(u64::MAX);
        let limit = terms.receive_limit.clone();
        // Half for a lone stream: the rest is for segments that several connections fetch for it.
        let (feed, drain) = match end {
            Some(_) => queue(limit, terms.streams_max, QUEUE_PART_MAX),
            None => queue(limit, 2, QUEUE_ALONE_MAX),
        };
        let task = if !self.shared.facts.ranges {
            let begun = self.shared.whole.lock().unwrap_or_else(PoisonError::into_inner).take();
            runtime.spawn(transfer::whole(terms, begun, feed))
        } else if let Some(end) = end {
            runtime.spawn(transfer::part(terms, at, end.min(length), feed))
        } else {
            runtime.spawn(transfer::long_part(terms, at, length, feed))
        };
        Stage::Running { drain, task: task.abort_handle() }
    }
}

impl ByteStream for HttpStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            match &self.stage {
                &Stage::New { at, end } => {
                    let facts = &self.shared.facts;
                    if !facts.ranges && (at, end) != (0, None) {
                        let name = facts.name.clone();
                        return self.fail(Error::OnePass { name });
                    }
                    let head = part_of(&self.shared.terms.head, at, end);
                    let at = at + head.len() as u64;
                    self.stage = Stage::AfterHead { at, end };
                    if !head.is_empty() {
                        return Ok(Some(head));
                    }
                }
                &Stage::AfterHead { at, end } => {
                    let length = self.shared.facts.length;
                    let stop = end.into_iter().chain(length).min();
                    let complete = stop.is_some_and(|stop| at >= stop);
                    self.stage = if complete { Stage::Complete } else { self.start(at, end) };
                }
                Stage::Running { drain, .. } => match drain.next() {
                    Found::Bytes(bytes) => return Ok(Some(bytes)),
                    Found::Complete => self.stage = Stage::Complete,
                    Found::Failed(error) => return self.fail(error),
                    Found::Lost => {
                        let name = self.shared.facts.name.clone();
                        return self.fail(Error::Vanished { name });
                    }
                },
                Stage::Complete => return Ok(None),
                Stage::Failed => {
                    let name = self.shared.facts.name.clone();
                    return Err(Box::new(Error::Vanished { name }));
                }
            }
        }
    }
}

impl Drop for HttpStream {
    fn drop(&mut self) {
        if let Stage::Running { task, .. } = &self.stage {
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
