//! The jobs of an import's worker pool: decode, find zeroes, write.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use formats::cluster::{ClusterDecoder, Codec};

use crate::activity_times::Activity;
use crate::buffer::{Buffer, Pool};
use crate::completion::Segment;
use crate::counting_sink::CountingSink;
use crate::error::Error;
use crate::memory_permit::MemoryPermit;

/// One write of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Bytes of the buffer, known not to be zero.
    Data {
        /// Guest address.
        at: u64,
        /// In the buffer.
        range: Range<usize>,
    },
    /// Bytes in the buffer that received them.
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

/// Bytes of a job's buffer and their guest address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPart {
    /// In the buffer.
    pub range: Range<usize>,
    /// Guest address.
    pub at: u64,
}

/// Work for one thread. Buffers return to their pool when the job is done.
pub enum Job {
    /// Writes without zeroes.
    Writes {
        /// `None` if no write uses it.
        buffer: Option<Buffer>,
        /// What to write, in any order.
        writes: Vec<Write>,
        /// Of the segment that the job is part of.
        guard: Option<SegmentGuard>,
    },
    /// Raw guest bytes that may contain zeroes.
    Scan {
        /// Shared by the jobs that were cut out of it.
        buffer: Arc<Buffer>,
        /// The parts of the buffer.
        parts: Vec<GuestPart>,
    },
    /// Compressed clusters.
    Clusters {
        /// Shared by the jobs that were cut out of it.
        buffer: Arc<Buffer>,
        /// Stored bytes and guest address of each cluster.
        clusters: Vec<GuestPart>,
        /// Of the segment that the job is part of.
        guard: Option<SegmentGuard>,
    },
    /// A part of a compressed raw disk that can be decoded on its own.
    Part {
        /// Its stored bytes.
        part: formats::units::CompressedUnit,
        /// Guest address of its first byte.
        at: u64,
        /// For its stored bytes and its decoder.
        permit: MemoryPermit,
    },
    /// Bytes outside of the pool: a cluster larger than a buffer, or one that was parked.
    Owned {
        /// Raw guest bytes, or one compressed cluster.
        bytes: Vec<u8>,
        /// Guest address.
        at: u64,
        /// One compressed cluster.
        compressed: bool,
        /// Of the segment that the job is part of.
        guard: Option<SegmentGuard>,
    },
}

/// One job of a [`Segment`], which is complete when all of its guards are [complete](Self::complete). Dropping a guard
/// (after a failure) leaves the segment incomplete.
pub struct SegmentGuard(Arc<Segment>);

impl SegmentGuard {
    /// The first guard of a segment.
    pub fn new(segment: Arc<Segment>) -> Self {
        segment.add_job();
        Self(segment)
    }

    /// Another one for the same segment.
    pub fn for_another_job(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }

    /// The job has been written to the sink.
    ///
    /// # Errors
    /// When the segment is complete, a checkpoint was due, and failed.
    pub fn complete(self) -> Result<(), Error> {
        self.0.finish_job()
    }
}

/// How compressed clusters of the image are decoded.
#[derive(Clone, Copy, Debug)]
pub struct Clusters {
    /// Compression.
    pub codec: Codec,
    /// Decoded length.
    pub size: usize,
    /// Guest bytes of the last cluster behind this are not written.
    pub virtual_size: u64,
}

/// State of one thread.
pub struct Worker {
    sink: CountingSink,
    name: Arc<str>,
    decoder: Option<(ClusterDecoder, Clusters)>,
    pool: Arc<Pool>,
    /// One buffer for decoded clusters of adjacent guest addresses, which are written at once.
    decoded: Arc<Pool>,
}

impl Worker {
    /// Writes to `sink`; `name` is the source in messages; `clusters` where the image has compressed ones.
    pub fn new(
        sink: CountingSink,
        pool: &Arc<Pool>,
        name: &str,
        clusters: Option<Clusters>,
    ) -> Self {
        let cluster_len = clusters.map_or(0, |clusters| clusters.size);
        let decoded = Pool::new(pool.buffer_len().max(cluster_len), 1);
        let decoder = clusters.map(|clusters| (ClusterDecoder::new(), clusters));
        Self { sink, name: name.into(), decoder, pool: Arc::clone(pool), decoded }
    }

    /// Does one job.
    ///
    /// # Errors
    /// [`Error::Decode`] and [`Error::Target`].
    pub fn work(&mut self, job: Job) -> Result<(), Error> {
        let guard = match job {
            Job::Writes { buffer, writes, guard } => {
                let times = self.sink.times();
                times.measure(Activity::WriteWait, || {
                    self.write(&writes, buffer.as_deref().unwrap_or_default())
                })?;
                guard
            }
            Job::Scan { buffer, parts } => {
                self.sink.times().measure(Activity::WriteWait, || {
                    parts.into_iter().try_for_each(|GuestPart { range, at }| {
                        self.sink.write_nonzero(at, &buffer[range])
                    })
                })?;
                None
            }
            Job::Clusters { buffer, clusters, guard } => {
                self.decode(&buffer, &clusters)?;
                guard
            }
            Job::Part { part, at, permit } => {
                self.decode_part(&part, at)?;
                drop(permit);
                None
            }
            Job::Owned { bytes, at, compressed: false, guard } => {
                let times = self.sink.times();
                times.measure(Activity::WriteWait, || self.sink.write_nonzero(at, &bytes))?;
                guard
            }
            Job::Owned { bytes, at, compressed: true, guard } => {
                self.decode(&bytes, &[GuestPart { range: 0..bytes.len(), at }])?;
                guard
            }
        };
        guard.map_or(Ok(()), SegmentGuard::complete)
    }

    /// Adjacent writes become one, even from different buffers.
    fn write(&self, writes: &[Write], buffer: &[u8]) -> Result<(), Error> {
        let (mut pieces, mut from, mut to) = (vec![], 0, 0);
        for write in writes {
            let (at, piece) = match write {
                Write::Zero { at, len } => {
                    self.sink.zero(*at, *len)?;
                    continue;
                }
                Write::Received { at, bytes } => (*at, &bytes[..]),
                Write::Data { at, range } => {
                    (*at, buffer.get(range.clone()).ok_or(Error::Panicked)?)
                }
            };
            if at != to {
                self.sink.write_pieces(from, &pieces)?;
                pieces.clear();
                from = at;
            }
            pieces.push(piece);
            to = at + piece.len() as u64;
        }
        self.sink.write_pieces(from, &pieces)
    }

    /// Decodes a part, a buffer at a time.
    fn decode_part(
        &mut self,
        part: &formats::units::CompressedUnit,
        mut at: u64,
    ) -> Result<(), Error> {
        let mut reader = part.reader();
        let mut buffer = self.pool.take();
        let mut lap = self.sink.times().lap();
        loop {
            let range = buffer
                .fill_from(&mut reader, at)
                .map_err(|error| crate::wire::explain(error, &self.name))?;
            lap.charge(Activity::Decompression);
            if range.is_empty() {
                return Ok(());
            }
            self.sink.write_nonzero(at, &buffer[range.clone()])?;
            lap.charge(Activity::WriteWait);
            at += range.len() as u64;
        }
    }

    /// Decodes clusters and writes each run of neighbours at once.
    fn decode(&mut self, stored: &[u8], clusters: &[GuestPart]) -> Result<(), Error> {
        let Some((decoder, kind)) = &mut self.decoder else { return Err(Error::Panicked) };
        let mut decoded = self.decoded.take();
        let (mut from, mut filled) = (0_u64, 0_usize);
        let mut lap = self.sink.times().lap();
        let mut write = |from: u64, bytes: &[u8]| {
            lap.charge(Activity::Decoding);
            let inside = kind.virtual_size.saturating_sub(from).min(bytes.len() as u64) as usize;
            let written = self.sink.write_nonzero(from, &bytes[..inside]);
            lap.charge(Activity::WriteWait);
            written
        };
        for GuestPart { range, at } in clusters {
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
