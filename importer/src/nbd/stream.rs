//! Bytes of an export in order, a few requests ahead of the reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use pipeline::{ByteStream, SourceError};

use super::Shared;
use super::connection::{Answer, Connection};
use crate::error::Error;
use crate::receive_buffer::ReceiveBuffer;
use crate::web::retry::Attempts;

/// Requests in flight of one stream at most: one is on its way while another is waited for.
const WINDOW_MAX: usize = 3;

/// The bytes from one position to another.
pub(super) struct NbdStream {
    shared: Arc<Shared>,
    /// Which of the connections it uses.
    slot: usize,
    connection: Option<Arc<Connection>>,
    at: u64,
    end: u64,
    /// What was asked for ends here.
    ordered: u64,
    flight: VecDeque<Order>,
    attempts: Attempts,
}

/// A request in flight.
struct Order {
    at: u64,
    len: u32,
    ticket: Receiver<Answer<ReceiveBuffer>>,
}

impl NbdStream {
    pub(super) fn new(shared: Arc<Shared>, slot: usize, at: u64, end: u64) -> Self {
        let attempts = Attempts::new(&shared.policy);
        let flight = VecDeque::new();
        Self { shared, slot, connection: None, at, end, ordered: at, flight, attempts }
    }

    /// The next bytes, if nothing goes wrong.
    fn attempt(&mut self) -> Result<Bytes, Error> {
        if self.connection.is_none() {
            self.connection = Some(self.shared.connection(self.slot)?);
            self.ordered = self.at;
        }
        self.order();
        let Some(Order { at, len, ticket }) = self.flight.pop_front() else {
            return Err(Error::Vanished { name: self.shared.address.name.to_string() });
        };
        let answer = ticket.recv().unwrap_or_else(|_| Err(self.shared.dropped()));
        let bytes = answer.map_err(|failure| self.shared.explain(failure, at, len))?.freeze();
        // Requests begin and end where the server's blocks do; the reader asked for less, perhaps.
        let from = (self.at - at) as usize;
        let to = u64::from(len).min(self.end - at) as usize;
        Ok(bytes.slice(from..to))
    }

    /// Requests that the memory of this stream allows.
    fn window(&self) -> usize {
        let piece = self.shared.piece as usize;
        let memory = self.shared.receive_limit.part_of(self.shared.streams_max, usize::MAX);
        (memory / piece).clamp(1, WINDOW_MAX)
    }

    fn order(&mut self) {
        let Some(connection) = &self.connection else { return };
        let block = u64::from(self.shared.export.block_min);
        let window = self.window();
        while self.flight.len() < window && self.ordered < self.end {
            let at = self.ordered / block * block;
            let end = self.end.next_multiple_of(block).min(self.shared.export.size);
            let len = (end - at).min(u64::from(self.shared.piece)) as u32;
            let ticket = connection.read(at, len, ReceiveBuffer::new(&self.shared.pool, 0));
            self.flight.push_back(Order { at, len, ticket });
            self.ordered = at + u64::from(len);
        }
    }
}

impl ByteStream for NbdStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.at >= self.end {
            return Ok(None);
        }
        loop {
            match self.attempt() {
                Ok(bytes) => {
                    self.attempts.progress();
                    self.at += bytes.len() as u64;
                    return Ok(Some(bytes));
                }
                Err(error) => {
                    self.flight.clear();
                    self.connection = None;
                    self.attempts.sleep_after(error, &self.shared.address.name, self.at)?;
                }
            }
        }
    }
}
