//! Moves the bytes of one upload from its connections, one after the other, to the pipeline.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pipeline::{ByteStream, HEAD_LEN, Source, SourceError, SourceFacts};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

const PIECES_IN_FLIGHT: usize = 16;

/// The pipeline's end. The upload ends at its announced length: a dropped sender is an interruption.
pub struct ChunkReceiver {
    pieces: Receiver<Bytes>,
    /// Received, but not returned yet.
    held: Bytes,
    /// Bytes that were returned.
    at: u64,
    length: u64,
    /// Receives the offset where the pipeline resumes.
    begin: Option<oneshot::Sender<u64>>,
}

impl ChunkReceiver {
    /// `begin` receives the offset where the pipeline resumes.
    pub fn new(length: u64, begin: Option<oneshot::Sender<u64>>) -> (Sender<Bytes>, Self) {
        let (sender, pieces) = channel(PIECES_IN_FLIGHT);
        (sender, Self { pieces, held: Bytes::new(), at: 0, length, begin })
    }

    /// The first bytes: [`HEAD_LEN`], or all of a shorter upload.
    ///
    /// # Errors
    /// If the upload is abandoned before.
    pub fn head(&mut self) -> Result<Bytes, SourceError> {
        let mut head = BytesMut::new();
        while head.len() < HEAD_LEN {
            let Some(mut piece) = self.next()? else { break };
            let wanted = piece.len().min(HEAD_LEN - head.len());
            head.extend_from_slice(&piece.split_to(wanted));
            self.at -= piece.len() as u64;
            self.held = piece;
        }
        Ok(head.freeze())
    }

    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.at >= self.length {
            return Ok(None);
        }
        let mut piece = std::mem::take(&mut self.held);
        if piece.is_empty() {
            let come = self.pieces.blocking_recv();
            piece = come.ok_or("the upload was abandoned or suspended")?;
        }
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }

    fn go_on_at(&mut self, at: u64) {
        self.at = at;
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(at); // the request may have ended
        }
    }
}

/// The upload as a pipeline source: its head, then the following bytes.
pub struct UploadSource {
    facts: SourceFacts,
    head: Bytes,
    chunks: Arc<Mutex<Option<ChunkReceiver>>>,
}

impl UploadSource {
    /// `validator`: set for a raw disk, whose durable part is skipped by an upload with the same validator.
    pub fn new(head: Bytes, chunks: ChunkReceiver, validator: Option<String>) -> Self {
        let facts = SourceFacts {
            name: "the upload".to_owned(),
            length: Some(chunks.length),
            ranges: validator.is_some(), // only one in fact: from the resumed offset to the end
            validator,
            streams_max: 1,
        };
        Self { facts, head, chunks: Arc::new(Mutex::new(Some(chunks))) }
    }
}

impl Source for UploadSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, _end: Option<u64>) -> Box<dyn ByteStream> {
        let chunks = Arc::clone(&self.chunks);
        let (head, at) = match at {
            0 => (self.head.clone(), self.head.len() as u64),
            at => (Bytes::new(), at),
        };
        Box::new(UploadStream { head, at, chunks, taken: None })
    }

    fn can_reopen(&self) -> bool {
        false
    }
}

struct UploadStream {
    head: Bytes,
    /// Offset of the first byte after the head.
    at: u64,
    chunks: Arc<Mutex<Option<ChunkReceiver>>>,
    taken: Option<ChunkReceiver>,
}

impl ByteStream for UploadStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if !self.head.is_empty() {
            return Ok(Some(std::mem::take(&mut self.head)));
        }
        if self.taken.is_none() {
            let mut chunks = self.chunks.lock().take();
            if let Some(chunks) = &mut chunks {
                chunks.go_on_at(self.at);
            }
            self.taken = chunks;
        }
        self.taken.as_mut().ok_or("an upload can be read only once")?.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::testing::collect;

    fn filled(bytes: &[u8], piece: usize) -> ChunkReceiver {
        let (sender, mut chunks) = ChunkReceiver::new(bytes.len() as u64, None);
        let (all, receiver) = channel(bytes.len() / piece + 1);
        chunks.pieces = receiver;
        drop(sender);
        for piece in bytes.chunks(piece) {
            all.try_send(Bytes::copy_from_slice(piece)).unwrap();
        }
        chunks
    }

    #[test]
    fn head_is_returned_again_by_the_stream() {
        let bytes = testkit::pattern(3 * HEAD_LEN as u64);
        for length in [8, HEAD_LEN - 8, HEAD_LEN, HEAD_LEN + 8, 3 * HEAD_LEN] {
            for piece in [1000, HEAD_LEN, 2 * HEAD_LEN] {
                let mut chunks = filled(&bytes[..length], piece);
                let head = chunks.head().unwrap();
                assert_eq!(head.len(), length.min(HEAD_LEN));
                let source = UploadSource::new(head, chunks, None);
                let found = collect(&mut *source.open(0, None)).unwrap();
                assert!(found == bytes[..length], "{length} {piece}");
                assert!(source.open(0, None).next().is_ok(), "the head can be had again");
            }
        }
    }

    #[test]
    fn resumed_offset_is_reported_to_the_client() {
        let bytes = testkit::pattern(4096);
        let (begin, begun) = oneshot::channel();
        let (sender, chunks) = ChunkReceiver::new(4096, Some(begin));
        let source = UploadSource::new(Bytes::copy_from_slice(&bytes[..1000]), chunks, None);
        sender.try_send(Bytes::copy_from_slice(&bytes[2048..])).unwrap();
        let found = collect(&mut *source.open(2048, None)).unwrap();
        assert!(found == bytes[2048..]);
        assert_eq!(begun.blocking_recv(), Ok(2048));
    }

    #[test]
    fn dropped_sender_is_an_error() {
        let (sender, mut chunks) = ChunkReceiver::new(8, None);
        sender.try_send(Bytes::from_static(b"1234")).unwrap();
        drop(sender);
        assert!(chunks.head().is_err());
    }
}
