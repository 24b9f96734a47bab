//! One connection with several requests in flight: each request gets a channel, and a task sends the reply to it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::handshake::Export;
use super::replies;
use super::wire::{CMD_BLOCK_STATUS, CMD_DISC, CMD_READ, request};
use crate::error::TransportError;
use crate::receive_buffer::ReceiveBuffer;

/// For the request to disconnect.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An export over one connection.
pub(super) struct Connection {
    orders: UnboundedSender<Vec<u8>>,
    table: Arc<Table>,
    receiver: AbortHandle,
}

/// A range of the export, and whether it is known to be zero.
pub(super) type State = (Range<u64>, bool);

/// What a request has brought, or why it has not.
pub(super) type NbdResult<T> = Result<T, Failure>;

/// Why a request was not answered.
#[derive(Debug)]
pub(super) enum Failure {
    /// The connection is of no more use.
    Lost(TransportError),
    /// The server cannot read this part, for the reason given.
    Remote(String),
    /// The server does not keep to the protocol.
    Nonsense(String),
}

/// The requests that are in flight.
pub(super) struct Table {
    host: String,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next_handle: u64,
    pending: HashMap<u64, Pending>,
    /// Why nothing more will come.
    dead: Option<String>,
}

pub(super) struct Pending {
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) kind: Kind,
    /// An error came, and the end of the reply did not.
    pub(super) error: Option<String>,
    since: Instant,
}

pub(super) enum Kind {
    Read { buffer: ReceiveBuffer, covered: Covered, done: SyncSender<NbdResult<ReceiveBuffer>> },
    Status { states: Vec<State>, done: SyncSender<NbdResult<Vec<State>>> },
}

impl Connection {
    /// Takes over a stream behind its handshake.
    pub(super) fn start<S>(stream: S, export: &Export, host: String, patience: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let (orders, waiting) = unbounded_channel();
        let table = Arc::new(Table { host, inner: Mutex::default() });
        tokio::spawn(send(writer, waiting));
        let receiver = tokio::spawn({
            let (table, export) = (Arc::clone(&table), export.clone());
            async move {
                let why = replies::receive(reader, &table, &export, patience).await;
                table.close(why, patience);
            }
        });
        Self { orders, table, receiver: receiver.abort_handle() }
    }

    /// Requests `len` bytes at `at`, at most as many as `buffer` holds.
    pub(super) fn read(
        &self,
        at: u64,
        len: u32,
        buffer: ReceiveBuffer,
    ) -> Receiver<NbdResult<ReceiveBuffer>> {
        let (done, ticket) = sync_channel(1);
        let kind = Kind::Read { buffer, covered: Covered::default(), done };
        self.order(CMD_READ, at, len, kind);
        ticket
    }

    /// Requests the block status of `len` bytes at `at`.
    pub(super) fn status(&self, at: u64, len: u32) -> Receiver<NbdResult<Vec<State>>> {
        let (done, ticket) = sync_channel(1);
        self.order(CMD_BLOCK_STATUS, at, len, Kind::Status { states: vec![], done });
        ticket
    }

    /// Whether requests still make sense.
    pub(super) fn is_alive(&self) -> bool {
        self.table.lock().dead.is_none()
    }

    fn order(&self, command: u16, at: u64, len: u32, kind: Kind) {
        let pending = Pending { at, len, kind, error: None, since: Instant::now() };
        if let Some(handle) = self.table.enter(pending) {
            let _ = self.orders.send(request(command, handle, at, len)); // its end has ended the table
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.receiver.abort(); // the sender requests to disconnect, and ends
    }
}

async fn send<W: AsyncWrite + Unpin>(mut writer: W, mut waiting: UnboundedReceiver<Vec<u8>>) {
    while let Some(first) = waiting.recv().await {
        let mut bytes = first;
        while let Ok(more) = waiting.try_recv() {
            bytes.extend(more);
        }
        // The waiting requester gets the error.
        if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let disconnect = async {
        writer.write_all(&request(CMD_DISC, 0, 0, 0)).await?;
        writer.shutdown().await
    };
    let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, disconnect).await; // the server may do without
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Registers a request, or fails it at once if the connection has ended.
    fn enter(&self, pending: Pending) -> Option<u64> {
        let mut inner = self.lock();
        if let Some(why) = &inner.dead {
            let lost =
                TransportError::Broken { host: self.host.clone(), source: why.clone().into() };
            drop(inner);
            pending.fail(Failure::Lost(lost));
            return None;
        }
        inner.next_handle += 1;
        let handle = inner.next_handle;
        inner.pending.insert(handle, pending);
        Some(handle)
    }

    /// The request that a reply names. The caller puts it back, or ends it.
    pub(super) fn take_pending(&self, handle: u64) -> Option<Pending> {
        self.lock().pending.remove(&handle)
    }

    /// More of the reply is to come.
    pub(super) fn put_back(&self, handle: u64, pending: Pending) {
        self.lock().pending.insert(handle, Pending { since: Instant::now(), ..pending });
    }

    /// How long the request that has waited longest has waited.
    pub(super) fn longest_wait(&self) -> Option<Duration> {
        self.lock().pending.values().map(|pending| pending.since.elapsed()).max()
    }

    fn close(&self, why: replies::End, waited: Duration) {
        let text = match &why {
            replies::End::Io(error) => error.to_string(),
            replies::End::Stalled => "no answer came".to_owned(),
            replies::End::Nonsense(what) => what.clone(),
        };
        let waiting = {
            let mut inner = self.lock();
            inner.dead = Some(text.clone());
            std::mem::take(&mut inner.pending)
        };
        for pending in waiting.into_values() {
            let host = self.host.clone();
            pending.fail(match &why {
                replies::End::Nonsense(what) => Failure::Nonsense(what.clone()),
                replies::End::Stalled => Failure::Lost(TransportError::Stalled { host, waited }),
                replies::End::Io(_) => {
                    Failure::Lost(TransportError::Broken { host, source: text.clone().into() })
                }
            });
        }
    }
}

impl Pending {
    pub(super) fn finish(self) {
        let Self { len, kind, error, .. } = self;
        if let Some(error) = error {
            return fail(kind, Failure::Remote(error));
        }
        match kind {
            Kind::Read { mut buffer, covered, done } if covered.is_whole(len) => {
                buffer.advance(len as usize);
                let _ = done.send(Ok(buffer)); // the requester may have been dropped
            }
            Kind::Status { states, done } if !states.is_empty() => {
                let _ = done.send(Ok(states));
            }
            kind => fail(kind, Failure::Nonsense("its reply is not complete".into())),
        }
    }

    fn fail(self, failure: Failure) {
        fail(self.kind, failure);
    }
}

fn fail(kind: Kind, failure: Failure) {
    // The requester may have been dropped.
    match kind {
        Kind::Read { done, .. } => drop(done.send(Err(failure))),
        Kind::Status { done, .. } => drop(done.send(Err(failure))),
    }
}

/// Which bytes of a request have come: each exactly once.
#[derive(Debug, Default)]
pub(super) struct Covered(Vec<Range<u32>>);

/// More separate pieces of one reply than any server sends.
const PIECES_MAX: usize = 1024;

impl Covered {
    /// Notes a piece. False where one of its bytes came before, or where there are too many pieces.
    pub(super) fn add(&mut self, piece: Range<u32>) -> bool {
        let ranges = &mut self.0;
        let index = ranges.partition_point(|range| range.end <= piece.start);
        let free = ranges.get(index).is_none_or(|next| piece.end <= next.start);
        if piece.is_empty() || !free {
            return false;
        }
        ranges.insert(index, piece);
        if index + 1 < ranges.len() && ranges[index].end == ranges[index + 1].start {
            ranges[index].end = ranges.remove(index + 1).end;
        }
        if index > 0 && ranges[index - 1].end == ranges[index].start {
            ranges[index - 1].end = ranges.remove(index).end;
        }
        ranges.len() <= PIECES_MAX
    }

    fn is_whole(&self, len: u32) -> bool {
        matches!(self.0.as_slice(), [only] if *only == (0..len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_counts_once(
            pieces in proptest::collection::vec((0_u32..40, 0_u32..9), 0..40),
        ) {
            let mut covered = Covered::default();
            let mut bytes = [false; 64];
            for (at, len) in pieces {
                let part = &mut bytes[at as usize..(at + len) as usize];
                let free = len > 0 && part.iter().all(|byte| !byte);
                prop_assert_eq!(covered.add(at..at + len), free);
                if free {
                    part.fill(true);
                }
            }
            let whole = bytes[..40].iter().all(|byte| *byte) && bytes[40..].iter().all(|byte| !byte);
            prop_assert_eq!(covered.is_whole(40), whole);
        }
    }
}
