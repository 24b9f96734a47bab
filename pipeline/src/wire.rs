//! The wire: a source's bytes in order, counted, hashed, and readable by any decoder.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::{Buf, Bytes};
use contract::{Checksum, Hasher};
use crossbeam_channel::{Sender, bounded};

use crate::activity_times::Activity;
use crate::error::Error;
use crate::io_counters::copy_counted;
use crate::progress::Progress;
use crate::source::{ByteStream, SourceError};

/// A source's failure passing through a decoder's `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("the source failed")]
struct WireFailure(#[source] SourceError);

/// Takes an error of a decoder apart again: the source's own failure, what is wrong with the bytes, or neither.
pub fn explain(error: io::Error, name: &str) -> Error {
    let name = name.to_owned();
    let error = match error.downcast::<WireFailure>() {
        Ok(WireFailure(source)) => return Error::Source { name, source },
        Err(error) => error,
    };
    match error.downcast::<formats::Error>() {
        Ok(source) => Error::Decode { name, source },
        Err(error) => Error::Source { name, source: error.into() },
    }
}

/// A stream as a `BufRead`, without copying.
pub struct Wire {
    stream: Box<dyn ByteStream>,
    chunk: Bytes,
    ended: bool,
    progress: Arc<Progress>,
    hash: Option<HashThread>,
}

impl Wire {
    /// Reads `stream`, counts into `progress`, and hashes on a thread of its own where `hasher` is given.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn new(
        stream: Box<dyn ByteStream>,
        progress: &Arc<Progress>,
        hasher: Option<Hasher>,
    ) -> Result<Self, Error> {
        let hash = hasher.map(HashThread::start).transpose()?;
        let progress = Arc::clone(progress);
        Ok(Self { stream, chunk: Bytes::new(), ended: false, progress, hash })
    }

    /// The next bytes as the source returned them; `None` at the end.
    ///
    /// # Errors
    /// The source's, see [`explain`].
    pub fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        if self.chunk.is_empty() {
            self.refill()?;
        }
        let chunk = std::mem::take(&mut self.chunk);
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    /// Reads to the end, so that all of it is counted and hashed, and returns the digest if it was started with a hasher.
    ///
    /// # Errors
    /// The source's, see [`explain`].
    pub fn finish(mut self) -> io::Result<Option<Checksum>> {
        while self.next_chunk()?.is_some() {}
        self.hash.take().map(HashThread::finish).transpose()
    }

    fn refill(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        match self.stream.next().map_err(|error| io::Error::other(WireFailure(error)))? {
            Some(chunk) => {
                self.progress.add_read(chunk.len() as u64);
                if let Some(hash) = &self.hash {
                    let times = self.progress.times();
                    times.measure(Activity::DigestWait, || hash.update(chunk.clone()))?;
                }
                self.chunk = chunk;
            }
            None => self.ended = true,
        }
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let len = available.len().min(out.len());
        copy_counted(&mut out[..len], &available[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for Wire {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            self.refill()?;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, len: usize) {
        self.chunk.advance(len);
    }
}

/// Chunks that may wait for the hash: hashing is faster than nearly every source, so few are needed.
const CHUNKS_WAITING: usize = 4;

/// Hashes in parallel to the decoder.
struct HashThread {
    chunks: Sender<Bytes>,
    thread: JoinHandle<Checksum>,
}

impl HashThread {
    fn start(mut hasher: Hasher) -> Result<Self, Error> {
        let (chunks, waiting) = bounded::<Bytes>(CHUNKS_WAITING);
        let hash = move || {
            waiting.iter().for_each(|chunk| hasher.update(&chunk));
            hasher.finish()
        };
        let thread =
            std::thread::Builder::new().name("digest".into()).spawn(hash).map_err(Error::Thread)?;
        Ok(Self { chunks, thread })
    }

    fn update(&self, chunk: Bytes) -> io::Result<()> {
        self.chunks.send(chunk).map_err(|_| io::Error::other("the digest thread ended"))
    }

    fn finish(self) -> io::Result<Checksum> {
        drop(self.chunks);
        self.thread.join().map_err(|_| io::Error::other("the digest thread panicked"))
    }
}
