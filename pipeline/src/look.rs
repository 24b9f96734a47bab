//! The first look: what the first bytes of a source tell about the image.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use formats::decompress::Limits;
use formats::image::{Known, Opened, open};
use formats::index::Layout;
use formats::sniff::{self, Compression, ImageFormat, look_further, look_through};
use formats::units::worth_splitting;

use crate::error::Error;
use crate::ova::is_ova;
use crate::plan::ImageFacts;
use crate::routes::read_exact;
use crate::source::{ByteStream, Source, SourceError};

/// As much as is looked at; sources hand it over without a second request.
pub const HEAD_LEN: usize = 256 << 10;

/// As much is looked at where an image keeps a part of its metadata further behind, and only its beginning can be had.
const FAR_LEN: usize = 16 << 20;

/// What an image turns out to be, for whoever has to know before it is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// The guest's disk itself: each byte has its place, whatever comes before it.
    Disk,
    /// An archive with the disk of a machine in it.
    Ova,
    /// Anything else: compressed, or with an index, or nothing that could be imported.
    Other,
}

/// What an image is that begins with `head`: [`HEAD_LEN`] bytes, or fewer if that is the `whole` of it.
pub fn nature(head: &[u8], whole: bool) -> Nature {
    match look_through(head, whole) {
        Ok(seen) if seen.compressions.is_empty() && seen.image == ImageFormat::Raw => {
            if is_ova(head) { Nature::Ova } else { Nature::Disk }
        }
        _ => Nature::Other,
    }
}

/// An image as its first bytes describe it.
pub struct Look {
    /// What decides about the route.
    pub facts: ImageFacts,
    /// Of an image that has an index.
    pub index: Option<Arc<dyn Layout>>,
    /// The first bytes of an archive with a machine's disk in it.
    pub ova: Option<Vec<u8>>,
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
        return Ok(Look { facts, index: None, ova: None, stream: None });
    }
    let refused = |source| Error::Decode { name: name(), source };
    let mut stream = Replay { seen: VecDeque::new(), rest: source.open(0, None), ended: false };
    let head = stream.look(HEAD_LEN).map_err(|source| Error::Source { name: name(), source })?;
    let seen = look_through(&head, stream.ended).map_err(refused)?;
    let parts = match seen.compressions.as_slice() {
        [only] => worth_splitting(*only, &head, Limits::default()),
        _ => false,
    };
    drop(head);
    let sniff::Look { compressions, image: format, image_head, .. } = seen;
    let ova = (format == ImageFormat::Raw && is_ova(&image_head)).then(|| image_head.clone());
    if ova.is_some() && !compressions.is_empty() {
        let what = "an OVA in a compressed stream (decompress it first)".to_owned();
        return Err(Error::Unsupported { what });
    }
    let index = match format {
        ImageFormat::Raw => None,
        _ => Some(
            Opening { source, stream: &mut stream, compressions: &compressions, backing }
                .open(format, image_head)?,
        ),
    };
    let virtual_size = index.as_ref().map(|layout| layout.virtual_size());
    let facts = ImageFacts { compressions, format, virtual_size, parts };
    Ok(Look { facts, index, ova, stream: Some(Box::new(stream)) })
}

/// An image whose header is being read.
struct Opening<'a> {
    source: &'a dyn Source,
    stream: &'a mut Replay,
    compressions: &'a [Compression],
    backing: Option<&'a str>,
}

impl Opening<'_> {
    fn open(mut self, format: ImageFormat, head: Vec<u8>) -> Result<Arc<dyn Layout>, Error> {
        let facts = self.source.facts();
        let name = || facts.name.clone();
        let plain = self.compressions.is_empty();
        let seekable = plain && facts.ranges;
        let mut known = Known::new(head, facts.length.filter(|_| plain));
        if seekable {
            known = known.seekable();
        }
        if let Some(backing) = self.backing {
            known = known.above(backing);
        }
        loop {
            let refused = |source| Error::Decode { name: name(), source };
            let needed = match open(format, &known).map_err(refused)? {
                Opened::Layout(layout) => return Ok(layout),
                Opened::Needs(range) => range,
            };
            if seekable {
                let len = (needed.end - needed.start) as usize; // formats ask for little at a time
                known.add(needed.start, read_exact(self.source, needed.start, len)?);
            } else {
                known.set_head(self.further(format, &needed)?);
            }
        }
    }

    /// The first bytes of the image, up to `needed` at least.
    fn further(&mut self, format: ImageFormat, needed: &Range<u64>) -> Result<Vec<u8>, Error> {
        let name = || self.source.facts().name.clone();
        let end = usize::try_from(needed.end).unwrap_or(usize::MAX);
        let mut wire_len = HEAD_LEN;
        while end <= FAR_LEN && wire_len < FAR_LEN {
            wire_len = (2 * wire_len).min(FAR_LEN);
            let head = self.stream.look(wire_len);
            let head = head.map_err(|source| Error::Source { name: name(), source })?;
            let head = match self.compressions {
                [] => head,
                _ => {
                    look_further(&head, self.stream.ended, FAR_LEN as u64)
                        .map_err(|source| Error::Decode { name: name(), source })?
                        .image_head
                }
            };
            if head.len() >= end {
                return Ok(head);
            }
            if self.stream.ended {
                let (what, at) = ("image's metadata", head.len() as u64);
                let source = formats::Error::Truncated { what, at };
                return Err(Error::Decode { name: name(), source });
            }
        }
        let what = format!(
            "a {format} image with metadata at byte {}, from a source that cannot serve ranges (save it in a file first),",
            needed.start
        );
        Err(Error::Unsupported { what })
    }
}

/// A stream whose first chunks were looked at and come again.
struct Replay {
    seen: VecDeque<Bytes>,
    rest: Box<dyn ByteStream>,
    ended: bool,
}

impl Replay {
    /// The first `len` bytes, or all there are.
    fn look(&mut self, len: usize) -> Result<Vec<u8>, SourceError> {
        let mut seen: usize = self.seen.iter().map(Bytes::len).sum();
        while seen < len && !self.ended {
            match self.rest.next()? {
                Some(chunk) => {
                    seen += chunk.len();
                    self.seen.push_back(chunk);
                }
                None => self.ended = true,
            }
        }
        let mut head = Vec::with_capacity(seen.min(len));
        for chunk in &self.seen {
            head.extend_from_slice(&chunk[..chunk.len().min(len - head.len())]);
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
