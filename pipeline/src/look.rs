//! The first look: what the first bytes of a source tell about the image.

use std::collections::VecDeque;

use bytes::Bytes;
use formats::decompress::Limits;
use formats::qcow2::Header;
use formats::sniff::{ImageFormat, look_through};
use formats::units::worth_splitting;

use crate::error::Error;
use crate::plan::ImageFacts;
use crate::source::{ByteStream, Source, SourceError};

/// As much as is looked at; sources hand it over without a second request.
pub const HEAD_LEN: usize = 256 << 10;

/// An image as its first bytes describe it.
pub struct Look {
    /// What decides about the route.
    pub facts: ImageFacts,
    /// Of a qcow2 image.
    pub qcow2: Option<Header>,
    /// The source from its start, including the bytes that were looked at: for whoever takes it first.
    pub stream: Option<Box<dyn ByteStream>>,
}

/// Looks at the first bytes of `source`. `backing`: what the backing file of an image may be called, of which this is
/// the delta.
///
/// # Errors
/// [`Error::Source`], and [`Error::Decode`] when they are of an image that is refused.
pub fn look(source: &dyn Source, backing: Option<&str>) -> Result<Look, Error> {
    let name = || source.facts().name.clone();
    if source.is_disk() {
        let (compressions, format) = (vec![], ImageFormat::Raw);
        let facts = ImageFacts { compressions, format, virtual_size: None, parts: false };
        return Ok(Look { facts, qcow2: None, stream: None });
    }
    let refused = |source| Error::Decode { name: name(), source };
    let mut stream = Replay { seen: VecDeque::new(), rest: source.open(0, None), ended: false };
    let head = stream.look().map_err(|source| Error::Source { name: name(), source })?;
    let seen = look_through(&head, stream.ended).map_err(refused)?;
    let plain = seen.compressions.is_empty();
    let length = if plain { source.facts().length } else { None };
    let qcow2 = match seen.image {
        ImageFormat::Qcow2 => {
            let header = match backing {
                None => Header::parse(&seen.image_head, length),
                Some(backing) => Header::parse_delta(&seen.image_head, length, backing),
            };
            Some(header.map_err(refused)?)
        }
        _ => None,
    };
    let parts = match seen.compressions.as_slice() {
        [only] => worth_splitting(*only, &head, Limits::default()),
        _ => false,
    };
    let virtual_size = qcow2.as_ref().map(Header::virtual_size);
    let facts =
        ImageFacts { compressions: seen.compressions, format: seen.image, virtual_size, parts };
    Ok(Look { facts, qcow2, stream: Some(Box::new(stream)) })
}

/// A stream whose first chunks were looked at and come again.
struct Replay {
    seen: VecDeque<Bytes>,
    rest: Box<dyn ByteStream>,
    ended: bool,
}

impl Replay {
    /// The first [`HEAD_LEN`] bytes or more, or all there are.
    fn look(&mut self) -> Result<Vec<u8>, SourceError> {
        let mut head = Vec::new();
        while head.len() < HEAD_LEN && !self.ended {
            match self.rest.next()? {
                Some(chunk) => {
                    head.extend_from_slice(&chunk[..chunk.len().min(HEAD_LEN - head.len())]);
                    self.seen.push_back(chunk);
                }
                None => self.ended = true,
            }
        }
        Ok(head)
    }
}

impl ByteStream for Replay {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self.seen.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None if self.ended => Ok(None),
            None => self.rest.next(),
        }
    }
}
