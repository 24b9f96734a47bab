//! What the crew of an import does: decode, look for zeroes, write.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use formats::cluster::{ClusterDecoder, Codec};

use crate::buffer::{Buffer, Pool};
use crate::error::Error;
use crate::ledger::Unit;
use crate::outlet::Outlet;
use crate::routes::parts::Share;
use crate::routes::stream::fill;

/// One thing to write out of a job's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Bytes of the buffer, known not to be zero.
    Data {
        /// Guest address.
        at: u64,
        /// In the buffer.
        range: Range<usize>,
    },
    /// Bytes that are written from where they were received.
    Received {
        /// Guest address.
        at: u64,
        /// Known not to be zero.
        bytes: Bytes,
    },
    /// A range that reads as zeroes.
    Zero {
        /// Guest address.
        at: u64,
        /// In bytes.
        len: u64,
    },
}

/// A stretch of a job's buffer that belongs at a guest address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// In the buffer.
    pub range: Range<usize>,
    /// Guest address.
    pub at: u64,
}

/// Work for one thread. What a job holds goes back to its pool when the job is done.
pub enum Job {
    /// Writes that were looked at already.
    Writes {
        /// None where no write is of its bytes.
        buffer: Option<Buffer>,
        /// What to write, in any order.
        writes: Vec<Write>,
        /// Whose work it is part of.
        ticket: Option<Ticket>,
    },
    /// Raw guest bytes that nobody looked at.
    Scan {
        /// Shared by the jobs that were cut out of it.
        buffer: Arc<Buffer>,
        /// Where its parts belong.
        parts: Vec<Placed>,
    },
    /// Compressed clusters.
    Clusters {
        /// Shared by the jobs that were cut out of it.
        buffer: Arc<Buffer>,
        /// Stored bytes and guest address of each cluster.
        clusters: Vec<Placed>,
        /// Whose work it is part of.
        ticket: Option<Ticket>,
    },
    /// A part of a compressed raw disk that can be decoded on its own.
    Part {
        /// Its stored bytes.
        part: formats::units::Unit,
        /// Guest address of its first byte.
        at: u64,
        /// Its share of the memory for parts, given back when it is dropped.
        share: Share,
    },
    /// Bytes that were not in a buffer: carried over a border, or parked.
    Owned {
        /// Raw guest bytes, or one compressed cluster.
        bytes: Vec<u8>,
        /// Guest address.
        at: u64,
        /// One compressed cluster.
        compressed: bool,
        /// Whose work it is part of.
        ticket: Option<Ticket>,
    },
}

/// Part of a [`Unit`] of the ledger, which is done when the last of its tickets was [used](Self::used). Dropping a
/// ticket (after a failure) leaves the unit undone for ever.
pub struct Ticket(Arc<Unit>);

impl Ticket {
    /// The first ticket of a unit.
    pub fn new(unit: Arc<Unit>) -> Self {
        unit.begin();
        Self(unit)
    }

    /// One more for the same unit.
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }

    /// What the ticket was for is in the sink.
    ///
    /// # Errors
    /// When the unit is complete, a checkpoint was due, and failed.
    pub fn used(self) -> Result<(), Error> {
        self.0.end()
    }
}

/// How compressed clusters of the image in work are decoded.
#[derive(Clone, Copy, Debug)]
pub struct Clusters {
    /// How they are stored.
    pub codec: Codec,
    /// Decoded length.
    pub size: usize,
    /// The guest ends here: of the last cluster only what lies before is written.
    pub virtual_size: u64,
}

/// One thread's tools.
pub struct Worker {
    outlet: Outlet,
    name: Arc<str>,
    decoder: Option<(ClusterDecoder, Clusters)>,
    pool: Arc<Pool>,
    /// Decoded clusters of neighbouring guest addresses collect here to be written at once.
    decoded: Arc<Pool>,
}

impl Worker {
    /// Writes to `outlet`; `name` is the source in messages; `clusters` where the image has compressed ones.
    pub fn new(outlet: Outlet, pool: &Arc<Pool>, name: &str, clusters: Option<Clusters>) -> Self {
        let cluster_len = clusters.map_or(0, |clusters| clusters.size);
        let decoded = Pool::new(pool.buffer_len().max(cluster_len), 1);
        let decoder = clusters.map(|clusters| (ClusterDecoder::new(), clusters));
        Self { outlet, name: name.into(), decoder, pool: Arc::clone(pool), decoded }
    }

    /// Does one job.
    ///
    /// # Errors
    /// [`Error::Decode`] and [`Error::Target`].
    pub fn work(&mut self, job: Job) -> Result<(), Error> {
        let ticket = match job {
            Job::Writes { buffer, writes, ticket } => {
                self.write(&writes, buffer.as_deref().unwrap_or_default())?;
                ticket
            }
            Job::Scan { buffer, parts } => {
                for Placed { range, at } in parts {
                    self.outlet.scan(at, &buffer[range])?;
                }
                None
            }
            Job::Clusters { buffer, clusters, ticket } => {
                self.decode(&buffer, &clusters)?;
                ticket
            }
            Job::Part { part, at, share } => {
                self.decode_part(&part, at)?;
                drop(share);
                None
            }
            Job::Owned { bytes, at, compressed: false, ticket } => {
                self.outlet.scan(at, &bytes)?;
                ticket
            }
            Job::Owned { bytes, at, compressed: true, ticket } => {
                self.decode(&bytes, &[Placed { range: 0..bytes.len(), at }])?;
                ticket
            }
        };
        ticket.map_or(Ok(()), Ticket::used)
    }

    /// Neighbours are written at once, wherever their bytes are.
    fn write(&self, writes: &[Write], buffer: &[u8]) -> Result<(), Error> {
        let (mut pieces, mut from, mut to) = (vec![], 0, 0);
        for write in writes {
            let (at, piece) = match write {
                Write::Zero { at, len } => {
                    self.outlet.zero(*at, *len)?;
                    continue;
                }
                Write::Received { at, bytes } => (*at, &bytes[..]),
                Write::Data { at, range } => {
                    (*at, buffer.get(range.clone()).ok_or(Error::Panicked)?)
                }
            };
            if at != to {
                self.outlet.pieces(from, &pieces)?;
                pieces.clear();
                from = at;
            }
            pieces.push(piece);
            to = at + piece.len() as u64;
        }
        self.outlet.pieces(from, &pieces)
    }

    /// Decodes a part, a buffer at a time.
    fn decode_part(&mut self, part: &formats::units::Unit, mut at: u64) -> Result<(), Error> {
        let mut reader = part.reader();
        let mut buffer = self.pool.take();
        loop {
            let range = fill(&mut reader, &mut buffer, at)
                .map_err(|error| crate::wire::explain(error, &self.name))?;
            if range.is_empty() {
                return Ok(());
            }
            self.outlet.scan(at, &buffer[range.clone()])?;
            at += range.len() as u64;
        }
    }

    /// Decodes clusters and writes each run of neighbours at once.
    fn decode(&mut self, stored: &[u8], clusters: &[Placed]) -> Result<(), Error> {
        let Some((decoder, kind)) = &mut self.decoder else { return Err(Error::Panicked) };
        let mut decoded = self.decoded.take();
        let (mut from, mut filled) = (0_u64, 0_usize);
        let write = |from: u64, bytes: &[u8]| {
            let inside = kind.virtual_size.saturating_sub(from).min(bytes.len() as u64) as usize;
            self.outlet.scan(from, &bytes[..inside])
        };
        for Placed { range, at } in clusters {
            if from + filled as u64 != *at || decoded.len() - filled < kind.size {
                write(from, &decoded[..filled])?;
                (from, filled) = (*at, 0);
            }
            let (stored, out) = (&stored[range.clone()], &mut decoded[filled..][..kind.size]);
            let needed = kind.virtual_size.saturating_sub(*at).min(kind.size as u64) as usize;
            decoder
                .decode(kind.codec, stored, *at, needed, out)
                .map_err(|source| Error::Decode { name: self.name.to_string(), source })?;
            filled += kind.size;
        }
        write(from, &decoded[..filled])
    }
}
