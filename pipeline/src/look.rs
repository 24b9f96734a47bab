//! The first look: what the first bytes of a source tell about the image.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use formats::decompress::Limits;
use formats::image::{Known, Opened, open};
use formats::index::Layout;
use formats::sniff::{
    self, Compression, ImageFormat, SNIFF_BYTES, foreign_tar, look_further, look_through,
};
use formats::units::worth_splitting;

use crate::error::Error;
use crate::options::SourceFormat;
use crate::ova::is_ova;
use crate::plan::ImageFacts;
use crate::routes::read_exact;
use crate::source::{ByteStream, Source, SourceError};

/// As much as is looked at; sources hand it over without a second request.
pub const HEAD_LEN: usize = 256 << 10;

/// Bytes examined where [`HEAD_LEN`] is not enough: the first block of a compression is longer, or the source serves no
/// ranges and the image keeps metadata further behind.
pub const FAR_LEN: usize = 16 << 20;

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
            match (is_ova(head), foreign_tar(head)) {
                (true, _) => Nature::Ova,
                (false, None) => Nature::Disk,
                (false, Some(_)) => Nature::Other,
            }
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

/// Detects the image in `source` by its first bytes, unless `format` is raw. `backing`: what the backing file of an image may be
/// called, of which this is the delta.
///
/// # Errors
/// [`Error::Source`], and [`Error::Decode`] when they are of an image that is refused.
pub fn look(
    source: &dyn Source,
    backing: Option<&str>,
    format: SourceFormat,
) -> Result<Look, Error> {
    let name = || source.facts().name.clone();
    let raw = |stream| {
        let (compressions, format) = (vec![], ImageFormat::Raw);
        let facts = ImageFacts { compressions, format, virtual_size: None, parts: false };
        Look { facts, index: None, ova: None, stream }
    };
    if source.is_disk() {
        return Ok(raw(None));
    }
    let refused = |source| Error::Decode { name: name(), source };
    let unread = |source| Error::Source { name: name(), source };
    let mut stream = Replay { seen: VecDeque::new(), rest: source.open(0, None), ended: false };
    if format == SourceFormat::Raw {
        if stream.look(1).map_err(unread)?.is_empty() {
            return Err(refused(formats::Error::Empty { what: "image" }));
        }
        return Ok(raw(Some(Box::new(stream))));
    }
    let (head, seen) = look_until_seen(&mut stream, &name)?;
    let parts = match seen.compressions.as_slice() {
        [only] => worth_splitting(*only, &head, Limits::default()),
        _ => false,
    };
    drop(head);
    let sniff::Look { compressions, image: format, image_head, .. } = seen;
    let ova = (format == ImageFormat::Raw && is_ova(&image_head)).then(|| image_head.clone());
    if format == ImageFormat::Raw
        && ova.is_none()
        && let Some(tar) = foreign_tar(&image_head)
    {
        return Err(refused(formats::Error::Foreign(tar)));
    }
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

/// Whether a longer beginning of the stream could show another format: too little of the image is visible.
pub fn needs_more(seen: &Result<sniff::Look, formats::Error>) -> bool {
    match seen {
        Ok(seen) => seen.image_head.len() < SNIFF_BYTES,
        Err(error) => matches!(error, formats::Error::HeadTooShort { .. }),
    }
}

/// Reads more and more of the stream until each of its compressions has yielded content: a block of bzip2 or lz4 has to be
/// complete first. Returns the bytes read and what they are.
fn look_until_seen(
    stream: &mut Replay,
    name: &dyn Fn() -> String,
) -> Result<(Vec<u8>, sniff::Look), Error> {
    let mut len = HEAD_LEN;
    loop {
        let head = stream.look(len).map_err(|source| Error::Source { name: name(), source })?;
        match look_through(&head, stream.ended) {
            seen if !stream.ended && len < FAR_LEN && needs_more(&seen) => {
                len = (2 * len).min(FAR_LEN)
            }
            Ok(seen) => return Ok((head, seen)),
            Err(source) => return Err(Error::Decode { name: name(), source }),
        }
    }
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
