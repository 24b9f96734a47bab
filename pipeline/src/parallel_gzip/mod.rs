//! Decodes a gzip stream on several threads: long members in chunks, see [`formats::speculation`].
//!
//! ```text
//! input ─► this thread: headers, short members ─► chunks ─► threads: speculate, wait for the state, resolve ─► pieces, in order
//!                                                              │                  ▲
//!                                                              └─ state behind ───┘ of the chunk before
//! ```
//!
//! A chunk waits for the state of the one before it, which was queued earlier; so the first one in the queue never waits
//! for another, and the caller takes pieces in the same order.

mod chunk;
mod read;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::sync::Arc;

use crc32fast::Hasher;
use crossbeam_channel::{Receiver, Sender, bounded};
use formats::speculation::{BodyDecoder, Chunk, GzipReader};

use crate::buffer::{Buffer, Pool};
use crate::error::Error;
use crate::io_counters::count_copied;
use crate::pieces::Piece;
use crate::progress::Progress;
use crate::sink::ALIGNMENT;
use crate::worker_pool::WorkerPool;
pub use read::decompress;

use chunk::{ChunkJob, ChunkMessage, ChunkWorker, StateBefore};

/// Compressed bytes of a chunk: several blocks of deflate.
const CHUNK: usize = 512 << 10;
/// Compressed bytes behind a chunk in which its last block should end. Blocks of zlib are shorter; the rest of a longer one is
/// decoded with the next chunk, in order.
const NEXT: usize = 64 << 10;
/// Compressed bytes of a member that are decoded on the reading thread. Shorter members never get to the others.
const SERIAL: u64 = 1 << 20;
/// What is decoded of a chunk before its turn: bytes that may refer to what precedes it, and as many that do not. The data
/// of a disk becomes a third on average, and zeroes are not stored; what exceeds this is decoded in order, while all other
/// threads wait. With half of it, that took longer than all else that is done in order.
const CONTENT_MAX: usize = 6 * CHUNK;
/// Bytes that one chunk usually takes: stored, and a third with 16 bits for each byte of its content.
pub const CHUNK_MEMORY: usize = CHUNK + NEXT + 2 * 3 * CHUNK + CHUNK / 2;
/// Pieces of a chunk that wait until those of the chunks before are taken.
const PIECES: usize = 2;

/// A gzip stream that is being decoded.
pub struct ParallelGzip<R> {
    input: R,
    gzip: GzipReader,
    /// Chunks in the order of the stream.
    chunks: VecDeque<Receiver<ChunkMessage>>,
    /// The body that is lent to the threads.
    lent: Option<LentBody>,
    /// The input has ended inside of a body: what the decoder still has is read on this thread.
    input_ended: bool,
    /// Bytes of content that the caller has, or that are in `tail`.
    at: u64,
    /// Bytes behind the last aligned address.
    tail: Vec<u8>,
    chunks_max: usize,
    pool: Arc<Pool>,
    progress: Arc<Progress>,
    /// Dropped last: its threads end when the receivers of their messages are gone.
    workers: WorkerPool<ChunkJob>,
}

/// A member's body, while it is decoded by the threads.
struct LentBody {
    /// The state behind the last chunk.
    state: Receiver<StateBefore>,
    checksum: Hasher,
    len: u64,
    /// Bytes that were read behind the last chunk, and their position in the stream.
    next: Option<(u64, Vec<u8>)>,
    /// There is nothing behind the last chunk.
    input_ended: bool,
}

impl<R: BufRead> ParallelGzip<R> {
    /// Decodes `input` from its start into pieces of `buffer_len` bytes at most. Time is counted in `progress`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn new(
        input: R,
        threads: usize,
        buffer_len: usize,
        progress: &Arc<Progress>,
    ) -> Result<Self, Error> {
        // While the pieces of one chunk are taken, all threads work on others.
        let chunks_max = threads + 1;
        let pool = Pool::unlimited(buffer_len, chunks_max);
        let worker = ChunkWorker::new(&pool, progress);
        let workers = WorkerPool::start("gzip", threads, chunks_max, || {
            let mut worker = worker.for_another_thread();
            move |job| {
                worker.decode(job);
                Ok(())
            }
        })?;
        Ok(Self {
            input,
            gzip: GzipReader::default(),
            chunks: VecDeque::new(),
            lent: None,
            input_ended: false,
            at: 0,
            tail: Vec::new(),
            chunks_max,
            pool,
            progress: Arc::clone(progress),
            workers,
        })
    }

    /// The next piece: only the last one ends inside of an aligned block. `None`: the stream is complete and verified.
    ///
    /// # Errors
    /// As for [`formats::decompress::reader`].
    pub fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        loop {
            let piece = if self.lent.is_some() { self.take_piece()? } else { self.read_piece()? };
            match piece {
                Some(Piece::Data(buffer, range)) => {
                    if let Some(piece) = self.align_piece(buffer, range) {
                        return Ok(Some(piece));
                    }
                }
                Some(Piece::Zeroes(len)) => {
                    self.at += len;
                    return Ok(Some(Piece::Zeroes(len)));
                }
                None if self.lent.is_some() => (), // it was lent before it had any content
                None if self.tail.is_empty() => return Ok(None),
                None => {
                    let mut buffer = self.pool.take();
                    let tail = std::mem::take(&mut self.tail);
                    buffer[..tail.len()].copy_from_slice(&tail);
                    return Ok(Some(Piece::Data(buffer, 0..tail.len())));
                }
            }
        }
    }

    /// Puts the bytes that were kept before those of `range`, and keeps those behind the last aligned address.
    fn align_piece(&mut self, mut buffer: Buffer, range: Range<usize>) -> Option<Piece> {
        let begin = range.start - self.tail.len();
        buffer[begin..range.start].copy_from_slice(&self.tail);
        self.at += range.len() as u64;
        let len = (range.end - begin).min((self.at % ALIGNMENT as u64) as usize);
        let end = range.end - len;
        self.tail.clear();
        self.tail.extend_from_slice(&buffer[end..range.end]);
        (begin < end).then_some(Piece::Data(buffer, begin..end))
    }

    /// Decodes a piece on this thread, and lends the body of a member that turns out to be long.
    fn read_piece(&mut self) -> io::Result<Option<Piece>> {
        let mut buffer = self.pool.take();
        let Self { gzip, input, at, .. } = self;
        let serial_max = if self.input_ended { u64::MAX } else { SERIAL };
        let mut reader = MemberReader { gzip, input, serial_max };
        let times = self.progress.times();
        let range = times.measure_decompression(|| buffer.fill_from(&mut reader, *at))?;
        if self.gzip.body_len() >= serial_max
            && let Some(body) = self.gzip.lend_body()
        {
            let (sender, state) = bounded(1);
            let content_at = self.at + range.len() as u64;
            let _ = sender.send(StateBefore { body, content_at }); // the receiver is here
            let checksum = Hasher::new();
            self.lent = Some(LentBody { state, checksum, len: 0, next: None, input_ended: false });
        }
        Ok((!range.is_empty()).then_some(Piece::Data(buffer, range)))
    }

    /// The next piece of a body that is lent, or of what follows it.
    fn take_piece(&mut self) -> io::Result<Option<Piece>> {
        loop {
            self.queue_chunks()?;
            let (Some(chunk), Some(lent)) = (self.chunks.front(), &mut self.lent) else {
                self.take_back(None)?;
                return self.read_piece();
            };
            match chunk.recv().map_err(|_| panicked())? {
                ChunkMessage::Piece(piece) => return Ok(Some(piece)),
                ChunkMessage::ChunkEnd { checksum, len } => {
                    lent.add(&checksum, len);
                    self.chunks.pop_front();
                }
                ChunkMessage::BodyEnd { checksum, len, body, unused, next_len } => {
                    lent.add(&checksum, len);
                    self.chunks.pop_front();
                    self.take_back(Some((body, unused, next_len)))?;
                    return self.read_piece();
                }
                ChunkMessage::Damaged(error) => return Err(error),
                ChunkMessage::Unused(_) => return Err(panicked()),
            }
        }
    }

    fn queue_chunks(&mut self) -> io::Result<()> {
        let Some(lent) = &mut self.lent else { return Ok(()) };
        while self.chunks.len() < self.chunks_max && !lent.input_ended {
            let mut read = || {
                let at = self.gzip.at();
                let bytes = self.gzip.next_chunk(&mut self.input, CHUNK)?;
                count_copied(bytes.len());
                Ok::<_, io::Error>((at, bytes))
            };
            let (at, bytes) = lent.next.take().map_or_else(&mut read, Ok)?;
            lent.input_ended = bytes.len() < CHUNK;
            if !lent.input_ended {
                lent.next = Some(read()?);
            }
            let next = lent.next.as_ref().map_or(&[][..], |(_, next)| next);
            let next = &next[..next.len().min(NEXT)];
            count_copied(next.len());
            let chunk = Chunk::new(bytes, next);
            let (after, state): (Sender<StateBefore>, _) = bounded(1);
            let (messages, received) = bounded(PIECES);
            let before = std::mem::replace(&mut lent.state, state);
            self.chunks.push_back(received);
            let job = ChunkJob { chunk, at, before, after, messages };
            self.workers.submit(job).map_err(|_| panicked())?;
        }
        Ok(())
    }

    /// Takes the body back: at its `end`, with the unused bytes of its last chunk and the number of those that are of the chunk
    /// behind it too, or where the input has ended.
    fn take_back(&mut self, end: Option<(BodyDecoder, Vec<u8>, usize)>) -> io::Result<()> {
        let Some(lent) = self.lent.take() else { return Ok(()) };
        let (body, mut unused, next_len) = match end {
            Some(end) => end,
            None => {
                self.input_ended = true;
                (lent.state.recv().map_err(|_| panicked())?.body, vec![], 0)
            }
        };
        let mut behind = Vec::new();
        for chunk in self.chunks.drain(..) {
            match chunk.recv() {
                Ok(ChunkMessage::Unused(bytes)) => behind.extend(bytes),
                _ => return Err(panicked()),
            }
        }
        if let Some((_, bytes)) = lent.next {
            behind.extend(bytes);
        }
        unused.extend(behind.into_iter().skip(next_len));
        self.gzip.return_body(body, &lent.checksum, lent.len, unused);
        Ok(())
    }
}

impl LentBody {
    fn add(&mut self, checksum: &Hasher, len: u64) {
        self.checksum.combine(checksum);
        self.len += len;
    }
}

/// A thread has ended without a message: its panic is in the log.
fn panicked() -> io::Error {
    io::Error::other("a thread that decompresses has failed")
}

/// Ends early when a member is long enough for the other threads.
struct MemberReader<'a, R> {
    gzip: &'a mut GzipReader,
    input: &'a mut R,
    serial_max: u64,
}

impl<R: BufRead> Read for MemberReader<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.gzip.body_len() >= self.serial_max {
            return Ok(0);
        }
        self.gzip.read(self.input, out)
    }
}
