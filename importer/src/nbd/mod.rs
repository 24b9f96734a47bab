//! Disks that an NBD server exports: `qemu-nbd`, `nbdkit`, and whatever else speaks the protocol.
//!
//! ```text
//! NbdSource ── a few connections, each opened again when it breaks, if the export is still the same
//!   └─ NbdStream ── a few requests ahead of its reader ──► Connection ──► replies, in any order
//! ```
//!
//! What the server knows to be zero (`base:allocation`) is never read.

mod address;
mod connection;
mod handshake;
mod link;
mod replies;
mod stream;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use address::Address;
use connection::{Connection, Failure};
use handshake::Export;
use parking_lot::Mutex;
use pipeline::{ByteStream, Extent, ExtentKind, Pool, Source, SourceError, SourceFacts};
use stream::NbdStream;

use crate::error::{Error, TransportError};
use crate::receive_limit::ReceiveLimit;
use crate::web::retry::{Attempts, RetryPolicy};
use crate::web::tls::Trust;
use crate::web::{HttpOptions, Network};

/// Bytes of one read request, unless the server sets a lower limit.
const PIECE_LEN: u32 = 512 << 10;
/// Streams worth reading at a time. Each has several requests in flight.
const STREAMS_MAX: usize = 4;
/// Bytes whose block status is requested at once.
const STATUS_LEN: u64 = 1 << 30;
const BUFFERS_KEPT: usize = 16;

/// An export of an NBD server.
pub struct NbdSource {
    facts: SourceFacts,
    shared: Arc<Shared>,
}

/// What the streams of a source have in common.
struct Shared {
    address: Address,
    export: Export,
    trust: Trust,
    policy: RetryPolicy,
    patience: Duration,
    /// One for each connection, created when it is first needed.
    slots: Vec<Mutex<Option<Arc<Connection>>>>,
    next_slot: AtomicUsize,
    pool: Arc<Pool>,
    receive_limit: ReceiveLimit,
    streams_max: usize,
    /// Bytes of one read request.
    piece: u32,
    network: Network,
}

impl NbdSource {
    /// Connects to `nbd://host:port/export`, `nbds://` (TLS), or `nbd+unix:///export?socket=PATH`. Of `options` it takes
    /// whom to trust, how often to try, how long to wait, and how many connections to make.
    ///
    /// # Errors
    /// When the address cannot be understood, and when the server cannot be reached or refuses.
    pub fn connect(location: &str, options: &HttpOptions) -> Result<Self, Error> {
        let address = Address::parse(location)?;
        let trust = Trust::new(options)?;
        let network = Network::new()?;
        let (policy, patience) = (options.retry.clone(), options.stall_timeout);
        let mut attempts = Attempts::new(&policy);
        let (first, export) = loop {
            match link::connect(&network, &address, &trust, patience) {
                Ok(linked) => break linked,
                Err(error) => attempts.sleep_after(error, &address.name, 0)?,
            }
        };
        let connections = if export.multi { options.streams_max.clamp(1, STREAMS_MAX) } else { 1 };
        let slots: Vec<_> = (0..connections).map(|_| Mutex::new(None)).collect();
        *slots[0].lock() = Some(Arc::new(first));
        let piece = PIECE_LEN.max(export.block_min).min(export.block_max);
        let facts = SourceFacts {
            name: address.name.to_string(),
            length: Some(export.size),
            ranges: true,
            validator: None, // the protocol has nothing that would change with the bytes
            streams_max: options.streams_max.clamp(1, STREAMS_MAX),
        };
        let shared = Shared {
            address,
            export,
            trust,
            policy,
            patience,
            slots,
            next_slot: AtomicUsize::new(0),
            receive_limit: options.receive_limit.clone(),
            streams_max: facts.streams_max,
            pool: Pool::unlimited(piece as usize, BUFFERS_KEPT),
            piece,
            network,
        };
        Ok(Self { facts, shared: Arc::new(shared) })
    }

    /// What is known of the beginning of `at..end`.
    fn block_status(&self, at: u64, end: u64) -> Result<Vec<Extent>, Error> {
        let block = u64::from(self.shared.export.block_min);
        let from = at / block * block;
        let len = (end.next_multiple_of(block).min(self.shared.export.size) - from).min(STATUS_LEN);
        let len = len as u32; // STATUS_LEN at most
        let connection = self.shared.connection(0)?;
        let answer = connection.status(from, len).recv();
        let answer = answer.unwrap_or_else(|_| Err(self.shared.dropped()));
        let states = answer.map_err(|failure| self.shared.explain(failure, from, len))?;
        let inside = states.into_iter().map(|(range, zero)| Extent {
            range: range.start.max(at)..range.end.min(end),
            kind: if zero { ExtentKind::Zero } else { ExtentKind::Data },
        });
        Ok(inside.filter(|extent| !extent.range.is_empty()).collect())
    }
}

impl Source for NbdSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let end = end.unwrap_or(u64::MAX).min(self.shared.export.size);
        let slot = self.shared.next_slot.fetch_add(1, Ordering::Relaxed) % self.shared.slots.len();
        Box::new(NbdStream::new(Arc::clone(&self.shared), slot, at, end))
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        if self.shared.export.allocation.is_none() || at >= end {
            return Ok(None);
        }
        let mut attempts = Attempts::new(&self.shared.policy);
        loop {
            match self.block_status(at, end) {
                Ok(extents) => return Ok(Some(extents)),
                Err(error) => attempts.sleep_after(error, &self.shared.address.name, at)?,
            }
        }
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.shared.receive_limit.set(bytes);
    }
}

impl fmt::Debug for NbdSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(formatter)
    }
}

impl Shared {
    /// The connection number `slot`, replaced if it is broken.
    fn connection(&self, slot: usize) -> Result<Arc<Connection>, Error> {
        let mut place = self.slots[slot].lock();
        if let Some(connection) = place.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(Arc::clone(connection));
        }
        *place = None;
        let (connection, export) =
            link::connect(&self.network, &self.address, &self.trust, self.patience)?;
        if export.size != self.export.size {
            let size = |export: &Export| format!("{} bytes long", export.size);
            return Err(Error::Changed {
                name: self.address.name.to_string(),
                before: size(&self.export),
                after: size(&export),
            });
        }
        // The block sizes that requests are cut for, and the number of the context, are those of the first connection.
        if export != self.export {
            let because = "the export has other properties after connecting again".to_owned();
            return Err(Error::Answer { url: self.address.name.clone(), because });
        }
        let connection = Arc::new(connection);
        *place = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn explain(&self, failure: Failure, at: u64, len: u32) -> Error {
        let url = self.address.name.clone();
        match failure {
            Failure::Lost(source) => Error::Nbd { url, source },
            Failure::Remote(because) => Error::Remote { url, at, len: len.into(), because },
            Failure::Nonsense(because) => Error::Answer { url, because },
        }
    }

    fn dropped(&self) -> Failure {
        let host = self.address.host();
        Failure::Lost(TransportError::Broken { host, source: "it was dropped".into() })
    }
}
