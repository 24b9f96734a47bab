//! Collects the stored bytes of compressed clusters into jobs.

use std::ops::Range;

use formats::index::Piece;

use super::TransferContext;
use super::ranges::Cursor;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::io_counters::copy_counted;
use crate::jobs::{GuestPart, Job, SegmentGuard};

/// By how many bytes less than this a compressed cluster may begin before the end of the one before it: a sector of qcow2.
pub const OVERLAP_MAX: u64 = 512;

/// Where the stored bytes of a cluster are in a buffer that holds the last bytes read from the source.
///
/// qcow2 packs compressed clusters by the byte and gives their length in sectors, so that one may begin in the sector in
/// which the one before it ends. The shared bytes have been read already:
///
/// ```text
///  source:   ├─────────── previous ──────────┤read_to
///                                   ├─shared─┼────── missing ──────┤
///                                   └──────────── stored ──────────┘
///  buffer:   0                    start    filled                 end
/// ```
///
/// A cluster that begins behind `read_to` shares nothing, and starts at `filled`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlap {
    /// Bytes at the end of the buffer that belong to the cluster.
    shared: usize,
    len: usize,
}

impl Overlap {
    /// Of a cluster of `len` bytes at `host`. The bytes before `read_to` were read, and the last `filled` of them kept.
    fn new(host: u64, len: usize, read_to: u64, filled: usize) -> Self {
        let shared = usize::try_from(read_to.saturating_sub(host)).unwrap_or(usize::MAX);
        Self { shared: shared.min(filled), len }
    }

    /// The cluster in a buffer with `filled` bytes.
    fn stored(&self, filled: usize) -> Range<usize> {
        let start = filled - self.shared;
        start..start + self.len
    }

    /// What has to be read into a buffer with `filled` bytes.
    fn missing(&self, filled: usize) -> Range<usize> {
        filled..self.stored(filled).end.max(filled)
    }
}

/// Compressed clusters of one run. Each job carries another guard of the run's segment.
pub struct ClusterBatch<'a> {
    context: &'a TransferContext<'a>,
    guard: &'a SegmentGuard,
    buffer: Option<Buffer>,
    filled: usize,
    clusters: Vec<GuestPart>,
}

impl<'a> ClusterBatch<'a> {
    pub fn new(context: &'a TransferContext<'a>, guard: &'a SegmentGuard) -> Self {
        Self { context, guard, buffer: None, filled: 0, clusters: vec![] }
    }

    /// Reads the cluster `piece` from `cursor`, which may be up to [`OVERLAP_MAX`] past its beginning.
    pub fn add(&mut self, piece: &Piece, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        let len = usize::try_from(piece.host_len).unwrap_or(usize::MAX);
        if len > self.context.pool.buffer_len() {
            return self.add_alone(piece, len, cursor);
        }
        let overlap = Overlap::new(piece.host, len, cursor.position(), self.filled);
        if overlap.stored(self.filled).end > self.context.pool.buffer_len() {
            self.flush_except(overlap.shared)?;
        }
        cursor.skip_to(piece.host)?;
        let (stored, missing) = (overlap.stored(self.filled), overlap.missing(self.filled));
        self.filled = missing.end;
        cursor.read_exact(&mut self.current_buffer()[missing])?;
        self.clusters.push(GuestPart { range: stored, at: piece.guest });
        Ok(())
    }

    /// A cluster that is longer than a buffer.
    fn add_alone(
        &mut self,
        piece: &Piece,
        len: usize,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Error> {
        let Overlap { shared, .. } = Overlap::new(piece.host, len, cursor.position(), self.filled);
        let mut bytes = vec![0; len];
        if let Some(buffer) = &self.buffer {
            copy_counted(&mut bytes[..shared], &buffer[self.filled - shared..self.filled]);
        }
        cursor.skip_to(piece.host)?;
        cursor.read_exact(&mut bytes[shared..])?;
        self.flush()?;
        // The next cluster may share these.
        let tail = len.min(OVERLAP_MAX as usize);
        copy_counted(&mut self.current_buffer()[..tail], &bytes[len - tail..]);
        self.filled = tail;
        let guard = Some(self.guard.for_another_job());
        self.context.workers.submit(Job::Owned { bytes, at: piece.guest, compressed: true, guard })
    }

    /// Submits what there is, and begins the next buffer with its last `shared` bytes.
    fn flush_except(&mut self, shared: usize) -> Result<(), Error> {
        let tail = match &self.buffer {
            Some(buffer) => buffer[self.filled - shared..self.filled].to_vec(),
            None => vec![],
        };
        self.flush()?;
        copy_counted(&mut self.current_buffer()[..tail.len()], &tail);
        self.filled = tail.len();
        Ok(())
    }

    /// Submits what there is.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.filled = 0;
        let clusters = std::mem::take(&mut self.clusters);
        match self.buffer.take() {
            Some(buffer) if !clusters.is_empty() => {
                let (buffer, guard) = (buffer.into(), Some(self.guard.for_another_job()));
                self.context.workers.submit(Job::Clusters { buffer, clusters, guard })
            }
            _ => Ok(()),
        }
    }

    fn current_buffer(&mut self) -> &mut Buffer {
        self.buffer.get_or_insert_with(|| self.context.pool.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_a_cluster_with_what_was_read() {
        // (case, host, read_to, filled) of 1000 bytes → stored, missing
        let table = [
            ("first of a buffer", 5000, 5000, 0, 0..1000, 0..1000),
            ("behind a gap", 5000, 4000, 700, 700..1700, 700..1700),
            ("adjacent", 5000, 5000, 700, 700..1700, 700..1700),
            ("one byte shared", 5000, 5001, 700, 699..1699, 700..1699),
            ("a sector less one byte shared", 5000, 5511, 700, 189..1189, 700..1189),
            ("shared, of which the buffer kept less", 5000, 5511, 100, 0..1000, 100..1000),
            ("wholly read", 5000, 6000, 1200, 200..1200, 1200..1200),
            ("wholly read, and more", 5000, 6100, 1200, 100..1100, 1200..1200),
        ];
        for (case, host, read_to, filled, stored, missing) in table {
            let overlap = Overlap::new(host, 1000, read_to, filled);
            assert_eq!(overlap.stored(filled), stored, "{case}");
            assert_eq!(overlap.missing(filled), missing, "{case}");
        }
    }
}
