//! Bytes of an export in order, a few requests ahead of the reader.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use pipeline::{ByteStream, SourceError};

use super::Shared;
use super::connection::{Connection, NbdResult};
use crate::error::Error;
use crate::receive_buffer::ReceiveBuffer;
use crate::web::retry::Attempts;

/// Requests in flight of one stream at most: one is in progress while another is waited for.
const WINDOW_MAX: usize = 3;

/// The bytes from one position to another.
pub(super) struct NbdStream {
    shared: Arc<Shared>,
    /// Which of the connections it uses.
    slot: usize,
    connection: Option<Arc<Connection>>,
    at: u64,
    end: u64,
    /// What was requested ends here.
    requested: u64,
    flight: VecDeque<NbdRequest>,
    attempts: Attempts,
}

struct NbdRequest {
    at: u64,
    len: u32,
    response: Receiver<NbdResult<ReceiveBuffer>>,
}

impl NbdStream {
    pub(super) fn new(shared: Arc<Shared>, slot: usize, at: u64, end: u64) -> Self {
        let attempts = Attempts::new(&shared.policy);
        let flight = VecDeque::new();
        Self { shared, slot, connection: None, at, end, requested: at, flight, attempts }
    }

    /// The next bytes, if nothing goes wrong.
    fn attempt(&mut self) -> Result<Bytes, Error> {
        if self.connection.is_none() {
            self.connection = Some(self.shared.connection(self.slot)?);
            self.requested = self.at;
        }
        self.send_requests();
        let Some(NbdRequest { at, len, response }) = self.flight.pop_front() else {
            return Err(Error::Vanished { name: self.shared.address.name.to_string() });
        };
        let answer = response.recv().unwrap_or_else(|_| Err(self.shared.dropped()));
        let bytes = answer.map_err(|failure| self.shared.explain(failure, at, len))?.freeze();
        // Requests begin and end where the server's blocks do; the reader requested less, perhaps.
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

    fn send_requests(&mut self) {
        let Some(connection) = &self.connection else { return };
        let block = u64::from(self.shared.export.block_min);
        let window = self.window();
        while self.flight.len() < window && self.requested < self.end {
            let at = self.requested / block * block;
            let end = self.end.next_multiple_of(block).min(self.shared.export.size);
            let len = (end - at).min(u64::from(self.shared.piece)) as u32;
            let response = connection.read(at, len, ReceiveBuffer::new(&self.shared.pool, 0));
            self.flight.push_back(NbdRequest { at, len, response });
            self.requested = at + u64::from(len);
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
