//! The bytes of one upload on their way from whichever connection there is to the one pipeline.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use pipeline::{ByteStream, HEAD_LEN, Source, SourceError, SourceFacts};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// Pieces between connection and pipeline.
const PIECES_IN_FLIGHT: usize = 16;

/// The end of the pipeline. It knows the end by the length that was announced: a sender that is gone is none.
pub struct Inflow {
    pieces: Receiver<Bytes>,
    /// Come, and not asked for.
    held: Bytes,
    /// Bytes that were handed over.
    at: u64,
    length: u64,
    /// Told where the pipeline goes on, if that is not at the beginning.
    begin: Option<oneshot::Sender<u64>>,
}

impl Inflow {
    /// For `length` bytes, and the end that they are put in at.
    pub fn new(length: u64, begin: Option<oneshot::Sender<u64>>) -> (Sender<Bytes>, Self) {
        let (sender, pieces) = channel(PIECES_IN_FLIGHT);
        (sender, Self { pieces, held: Bytes::new(), at: 0, length, begin })
    }

    /// The first bytes: [`HEAD_LEN`] of them, or all there are.
    ///
    /// # Errors
    /// When the upload is given up before.
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
            piece = come.ok_or("the upload was given up, or will be gone on with later")?;
        }
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }

    fn go_on_at(&mut self, at: u64) {
        self.at = at;
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(at); // whoever asked may have left
        }
    }
}

/// An upload as a source: what it began with, and then what comes.
pub struct Parts {
    facts: SourceFacts,
    head: Bytes,
    inflow: Arc<Mutex<Option<Inflow>>>,
}

impl Parts {
    /// `validator`: it is a disk, and what is durable of it need not come again in an upload that has the same one.
    pub fn new(head: Bytes, inflow: Inflow, validator: Option<String>) -> Self {
        let facts = SourceFacts {
            name: "the upload".to_owned(),
            length: Some(inflow.length),
            ranges: validator.is_some(), // in fact only one, from where it goes on to its end
            validator,
            streams_max: 1,
        };
        Self { facts, head, inflow: Arc::new(Mutex::new(Some(inflow))) }
    }
}

impl Source for Parts {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, _end: Option<u64>) -> Box<dyn ByteStream> {
        let inflow = Arc::clone(&self.inflow);
        let (head, at) = match at {
            0 => (self.head.clone(), self.head.len() as u64),
            at => (Bytes::new(), at),
        };
        Box::new(Part { head, at, inflow, taken: None })
    }

    fn can_reopen(&self) -> bool {
        false
    }
}

struct Part {
    head: Bytes,
    /// Where what is not in the head begins.
    at: u64,
    inflow: Arc<Mutex<Option<Inflow>>>,
    taken: Option<Inflow>,
}

impl ByteStream for Part {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if !self.head.is_empty() {
            return Ok(Some(std::mem::take(&mut self.head)));
        }
        if self.taken.is_none() {
            let mut inflow = self.inflow.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(inflow) = &mut inflow {
                inflow.go_on_at(self.at);
            }
            self.taken = inflow;
        }
        self.taken.as_mut().ok_or("an upload can be read only once")?.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::testing::collect;

    fn filled(bytes: &[u8], piece: usize) -> Inflow {
        let (sender, mut inflow) = Inflow::new(bytes.len() as u64, None);
        let (all, room) = channel(bytes.len() / piece + 1);
        inflow.pieces = room;
        drop(sender);
        for piece in bytes.chunks(piece) {
            all.try_send(Bytes::copy_from_slice(piece)).unwrap();
        }
        inflow
    }

    #[test]
    fn what_was_looked_at_comes_again_whatever_the_pieces() {
        let bytes = testkit::pattern(3 * HEAD_LEN as u64);
        for length in [8, HEAD_LEN - 8, HEAD_LEN, HEAD_LEN + 8, 3 * HEAD_LEN] {
            for piece in [1000, HEAD_LEN, 2 * HEAD_LEN] {
                let mut inflow = filled(&bytes[..length], piece);
                let head = inflow.head().unwrap();
                assert_eq!(head.len(), length.min(HEAD_LEN));
                let source = Parts::new(head, inflow, None);
                let found = collect(&mut *source.open(0, None)).unwrap();
                assert!(found == bytes[..length], "{length} {piece}");
                assert!(source.open(0, None).next().is_ok(), "the head can be had again");
            }
        }
    }

    #[test]
    fn what_is_durable_does_not_come_again_and_the_client_is_told() {
        let bytes = testkit::pattern(4096);
        let (told, tell) = oneshot::channel();
        let (sender, inflow) = Inflow::new(4096, Some(told));
        let source = Parts::new(Bytes::copy_from_slice(&bytes[..1000]), inflow, None);
        sender.try_send(Bytes::copy_from_slice(&bytes[2048..])).unwrap();
        let found = collect(&mut *source.open(2048, None)).unwrap();
        assert!(found == bytes[2048..]);
        assert_eq!(tell.blocking_recv(), Ok(2048));
    }

    #[test]
    fn a_sender_that_is_gone_is_no_end() {
        let (sender, mut inflow) = Inflow::new(8, None);
        sender.try_send(Bytes::from_static(b"1234")).unwrap();
        drop(sender);
        assert!(inflow.head().is_err());
    }
}
