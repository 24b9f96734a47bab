//! What a thread does with one chunk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crc32fast::Hasher;
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use formats::speculation::{
    BodyDecoder, Chunk, ChunkDecoder, Decoded, GzipReader, Speculation, SpeculationMemory,
};

use super::CONTENT_MAX;
use crate::activity_times::{Activity, Lap};
use crate::buffer::Pool;
use crate::pieces::{Piece, PieceWriter};
use crate::progress::Progress;

/// A chunk, and how it is connected with its neighbours.
pub(super) struct ChunkJob {
    pub chunk: Chunk,
    /// Its position in the stream.
    pub at: u64,
    /// Closed when the body ended, or decoding failed, before this chunk.
    pub before: Receiver<StateBefore>,
    pub after: Sender<StateBefore>,
    pub messages: Sender<ChunkMessage>,
}

/// Where the decoder is at the beginning of a chunk.
pub(super) struct StateBefore {
    pub body: BodyDecoder,
    /// Position of the chunk's content.
    pub content_at: u64,
}

/// From the thread to the caller.
pub(super) enum ChunkMessage {
    Piece(Piece),
    /// All pieces were sent. The checksum and length are those of the chunk's content.
    ChunkEnd {
        checksum: Hasher,
        len: u64,
    },
    /// All pieces were sent, and the body ended before the chunk did, or in the first bytes of the next one. Of these, as many
    /// as the chunk knows are among the unused bytes.
    BodyEnd {
        checksum: Hasher,
        len: u64,
        body: BodyDecoder,
        unused: Vec<u8>,
        next_len: usize,
    },
    /// The body ended before the chunk.
    Unused(Vec<u8>),
    Damaged(io::Error),
}

/// The caller takes no more messages.
struct Abandoned;

/// One of the threads.
pub(super) struct ChunkWorker {
    pool: Arc<Pool>,
    progress: Arc<Progress>,
    failures: Arc<SpeculationFailures>,
    memory: Option<SpeculationMemory>,
}

impl ChunkWorker {
    pub(super) fn new(pool: &Arc<Pool>, progress: &Arc<Progress>) -> Self {
        let (pool, progress) = (Arc::clone(pool), Arc::clone(progress));
        Self { pool, progress, failures: Arc::default(), memory: None }
    }

    /// For another thread of the same stream.
    pub(super) fn for_another_thread(&self) -> Self {
        let Self { pool, progress, failures, .. } = self;
        let (pool, progress) = (Arc::clone(pool), Arc::clone(progress));
        Self { pool, progress, failures: Arc::clone(failures), memory: None }
    }

    pub(super) fn decode(&mut self, job: ChunkJob) {
        let ChunkJob { chunk, at, before, after, messages } = job;
        let times = self.progress.times();
        let mut was_tried = false;
        let mut speculation = None;
        let state = match before.try_recv() {
            Err(TryRecvError::Empty) => {
                was_tried = self.failures.is_worth_trying();
                if was_tried {
                    let memory = self.memory.take();
                    let memory = memory.unwrap_or_else(|| SpeculationMemory::new(CONTENT_MAX));
                    let decode = || Speculation::decode(&chunk, memory, || !before.is_empty());
                    match times.measure(Activity::Decompression, decode) {
                        Ok(decoded) => speculation = Some(decoded),
                        Err(memory) => self.memory = Some(memory),
                    }
                }
                before.recv().ok()
            }
            // Nothing to guess: what precedes the chunk is decoded, or will never be.
            Ok(state) => Some(state),
            Err(TryRecvError::Disconnected) => None,
        };
        let Some(StateBefore { body, content_at }) = state else {
            let _ = messages.send(ChunkMessage::Unused(chunk.into_bytes())); // the caller may have failed
            return;
        };
        let decoder = ChunkDecoder::new(&chunk, body, speculation);
        let writer = PieceWriter::new(&self.pool, content_at);
        let output = CheckedPieces { messages: &messages, checksum: Hasher::new(), len: 0 };
        let after = Some(after);
        let mut decoding = Decoding { decoder, writer, output, after, lap: times.lap(), at };
        let last = decoding.decode_to_end();
        if was_tried {
            self.failures.record(decoding.decoder.was_prepared());
        }
        let Decoding { mut decoder, output: CheckedPieces { checksum, len, .. }, .. } = decoding;
        let last = last.map(|last| match last {
            LastStep::ChunkEnd => ChunkMessage::ChunkEnd { checksum, len },
            LastStep::BodyEnd => {
                let unused = decoder.unused();
                let (body, next_len) = (decoder.next_state(), chunk.next_len());
                ChunkMessage::BodyEnd { checksum, len, body, unused, next_len }
            }
            LastStep::Damaged(error) => ChunkMessage::Damaged(error),
        });
        if let Some(memory) = decoder.into_memory() {
            self.memory = Some(memory);
        }
        if let Ok(last) = last {
            let _ = messages.send(last);
        }
    }
}

/// One chunk, from its known state on.
struct Decoding<'a> {
    decoder: ChunkDecoder<'a>,
    writer: PieceWriter,
    output: CheckedPieces<'a>,
    /// Until the state behind the chunk is sent.
    after: Option<Sender<StateBefore>>,
    lap: Lap<'a>,
    at: u64,
}

enum LastStep {
    ChunkEnd,
    BodyEnd,
    Damaged(io::Error),
}

impl Decoding<'_> {
    fn decode_to_end(&mut self) -> Result<LastStep, Abandoned> {
        loop {
            // As early as possible: the next chunk waits for it.
            if let Some(len) = self.decoder.prepared_len() {
                self.send_state(len);
            }
            let decoded = self.decoder.decode(self.writer.space());
            self.lap.charge(Activity::Decompression);
            let last = match decoded {
                Ok(Decoded::Bytes(n)) => {
                    self.writer.advance(n);
                    self.send_pieces()?;
                    continue;
                }
                Ok(Decoded::Zeroes(n)) => {
                    self.writer.zeroes(n as u64);
                    self.send_pieces()?;
                    continue;
                }
                Ok(Decoded::ChunkEnd) => {
                    self.send_state(0);
                    LastStep::ChunkEnd
                }
                Ok(Decoded::BodyEnd) => LastStep::BodyEnd,
                Err(damaged) => LastStep::Damaged(GzipReader::damaged(self.at, damaged)),
            };
            self.writer.flush();
            self.send_pieces()?;
            return Ok(last);
        }
    }

    fn send_pieces(&mut self) -> Result<(), Abandoned> {
        while let Some(piece) = self.writer.next_piece() {
            self.output.send(piece)?;
            self.lap.restart(); // it may have waited for the caller
        }
        Ok(())
    }

    /// `len`: bytes of content that are still to come.
    fn send_state(&mut self, len: u64) {
        let Some(after) = self.after.take() else { return };
        let content_at = self.writer.at() + len;
        let _ = after.send(StateBefore { body: self.decoder.next_state(), content_at });
    }
}

/// The pieces of a chunk on their way to the caller.
struct CheckedPieces<'a> {
    messages: &'a Sender<ChunkMessage>,
    /// Of all content that was sent, as its length.
    checksum: Hasher,
    len: u64,
}

impl CheckedPieces<'_> {
    fn send(&mut self, piece: Piece) -> Result<(), Abandoned> {
        self.len += piece.len();
        match &piece {
            Piece::Data(buffer, range) => self.checksum.update(&buffer[range.clone()]),
            Piece::Zeroes(len) => self.checksum.combine(&checksum_of_zeroes(*len)),
        }
        self.messages.send(ChunkMessage::Piece(piece)).map_err(|_| Abandoned)
    }
}

/// The checksum of `len` zeroes, put together from checksums of 1, 2, 4 … zeroes, each of which is twice the one before.
fn checksum_of_zeroes(mut len: u64) -> Hasher {
    let (mut all, mut part) = (Hasher::new(), Hasher::new());
    part.update(&[0]);
    while len > 0 {
        if len & 1 == 1 {
            all.combine(&part);
        }
        part.combine(&part.clone());
        len >>= 1;
    }
    all
}

/// Keeps the threads from guessing in streams without blocks to find.
#[derive(Default)]
struct SpeculationFailures {
    /// Since the last success.
    in_a_row: AtomicUsize,
}

impl SpeculationFailures {
    const ACCEPTED: usize = 4;
    /// Behind that, one chunk of so many is tried.
    const PAUSE: usize = 16;

    fn is_worth_trying(&self) -> bool {
        let failures = self.in_a_row.load(Ordering::Relaxed);
        if failures < Self::ACCEPTED {
            return true;
        }
        let skipped = self.in_a_row.fetch_add(1, Ordering::Relaxed);
        skipped.is_multiple_of(Self::PAUSE)
    }

    fn record(&self, success: bool) {
        if success {
            self.in_a_row.store(0, Ordering::Relaxed);
        } else {
            self.in_a_row.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_many_zeroes_are_those_of_their_bytes() {
        for len in [0, 1, 65_536, (1 << 20) - 1, 1 << 20, (5 << 20) + 3, 64 << 20] {
            let expected = crc32fast::hash(&vec![0; len]);
            assert_eq!(checksum_of_zeroes(len as u64).finalize(), expected, "{len}");
        }
    }

    #[test]
    fn after_failures_in_a_row_few_chunks_are_tried() {
        let failures = SpeculationFailures::default();
        let tried = |failures: &SpeculationFailures, chunks| {
            (0..chunks).filter(|_| failures.is_worth_trying()).count()
        };
        for _ in 0..3 {
            assert!(failures.is_worth_trying());
            failures.record(false);
        }
        assert_eq!(tried(&failures, 100), 100);
        failures.record(false);
        assert_eq!(tried(&failures, 160), 10);
        failures.record(true);
        assert_eq!(tried(&failures, 100), 100);
    }
}
