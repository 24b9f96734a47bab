//! Detects compression and format of an image by its first bytes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use formats::decompress::Limits;
use formats::image::{KnownBytes, Opened, open};
use formats::index::Layout;
use formats::sniff::{
    self, Compression, ImageFormat, SNIFF_BYTES, foreign_tar, probe_head, probe_head_up_to,
};
use formats::units::worth_splitting;

use crate::error::Error;
use crate::options::SourceFormat;
use crate::ova::is_ova;
use crate::plan::ImageFacts;
use crate::routes::read_exact;
use crate::source::{ByteStream, Source, SourceError};

/// Bytes that are examined first. Sources serve them without a second request.
pub const HEAD_LEN: usize = 256 << 10;

/// Bytes examined where [`HEAD_LEN`] is not enough: the first block of a compression is longer, or the source serves no
/// ranges and the image has metadata at higher offsets.
pub const HEAD_LEN_MAX: usize = 16 << 20;

/// Kind of an image, for callers that have to know before they import it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// A raw disk: the offset of each byte is its guest address.
    Disk,
    /// An archive with the disk of a virtual machine.
    Ova,
    /// Anything else: compressed, indexed, or not importable.
    Other,
}

/// The kind of an image that begins with `head`: [`HEAD_LEN`] bytes, or fewer if that is the `whole` image.
pub fn image_kind(head: &[u8], whole: bool) -> ImageKind {
    match probe_head(head, whole) {
        Ok(found) if found.compressions.is_empty() && found.image == ImageFormat::Raw => {
            match (is_ova(head), foreign_tar(head)) {
                (true, _) => ImageKind::Ova,
                (false, None) => ImageKind::Disk,
                (false, Some(_)) => ImageKind::Other,
            }
        }
        _ => ImageKind::Other,
    }
}

/// An image as its first bytes describe it.
pub struct ProbedImage {
    pub facts: ImageFacts,
    /// The first bytes, if the image is an OVA.
    pub ova: Option<Vec<u8>>,
    /// The source from its start, including the bytes that were examined.
    pub stream: Option<Box<dyn ByteStream>>,
}

/// Detects the image in `source` by its first bytes, unless `format` is raw. `backing`: the required name of the backing
/// file, if the image is a delta.
///
/// # Errors
/// [`Error::Source`], and [`Error::Decode`] when they are of an image that is refused.
pub fn probe(
    source: &dyn Source,
    backing: Option<&str>,
    format: SourceFormat,
) -> Result<ProbedImage, Error> {
    let name = || source.facts().name.clone();
    let raw = |stream| {
        let (compressions, format) = (vec![], ImageFormat::Raw);
        let facts = ImageFacts { compressions, format, layout: None, splittable: None };
        ProbedImage { facts, ova: None, stream }
    };
    if source.is_disk() {
        return Ok(raw(None));
    }
    let refused = |source| Error::Decode { name: name(), source };
    let unread = |source| Error::Source { name: name(), source };
    let mut stream = Replay { examined: VecDeque::new(), rest: source.open(0, None), ended: false };
    if format == SourceFormat::Raw {
        if stream.peek(1).map_err(unread)?.is_empty() {
            return Err(refused(formats::Error::Empty { what: "image" }));
        }
        return Ok(raw(Some(Box::new(stream))));
    }
    let (head, found) = probe_compressions(&mut stream, &name)?;
    let splittable = match found.compressions.as_slice() {
        [only] => worth_splitting(*only, &head, Limits::default()).then_some(*only),
        _ => None,
    };
    drop(head);
    let sniff::ProbedHead { compressions, image: format, image_head, .. } = found;
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
    let layout = match format {
        ImageFormat::Raw => None,
        _ => Some(
            Opening { source, stream: &mut stream, compressions: &compressions, backing }
                .open(format, image_head)?,
        ),
    };
    let facts = ImageFacts { compressions, format, layout, splittable };
    Ok(ProbedImage { facts, ova, stream: Some(Box::new(stream)) })
}

/// Whether a longer head could show another format: too little of the image is decoded.
pub fn needs_more(found: &Result<sniff::ProbedHead, formats::Error>) -> bool {
    match found {
        Ok(found) => found.image_head.len() < SNIFF_BYTES,
        Err(error) => matches!(error, formats::Error::HeadTooShort { .. }),
    }
}

/// Reads more of the stream until each of its compressions has yielded content: a block of bzip2 or lz4 has to be
/// complete first. Returns the bytes read and what they contain.
fn probe_compressions(
    stream: &mut Replay,
    name: &dyn Fn() -> String,
) -> Result<(Vec<u8>, sniff::ProbedHead), Error> {
    let mut len = HEAD_LEN;
    loop {
        let head = stream.peek(len).map_err(|source| Error::Source { name: name(), source })?;
        match probe_head(&head, stream.ended) {
            found if !stream.ended && len < HEAD_LEN_MAX && needs_more(&found) => {
                len = (2 * len).min(HEAD_LEN_MAX)
            }
            Ok(found) => return Ok((head, found)),
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
        let mut known = KnownBytes::new(head, facts.length.filter(|_| plain));
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
                let len = (needed.end - needed.start) as usize; // formats need little at a time
                known.add(needed.start, read_exact(self.source, needed.start, len)?);
            } else {
                known.set_head(self.read_head(format, &needed)?);
            }
        }
    }

    /// The first bytes of the image, up to `needed` at least.
    fn read_head(&mut self, format: ImageFormat, needed: &Range<u64>) -> Result<Vec<u8>, Error> {
        let name = || self.source.facts().name.clone();
        let end = usize::try_from(needed.end).unwrap_or(usize::MAX);
        let mut wire_len = HEAD_LEN;
        while end <= HEAD_LEN_MAX && wire_len < HEAD_LEN_MAX {
            wire_len = (2 * wire_len).min(HEAD_LEN_MAX);
            let head = self.stream.peek(wire_len);
            let head = head.map_err(|source| Error::Source { name: name(), source })?;
            let head = match self.compressions {
                [] => head,
                _ => {
                    probe_head_up_to(&head, self.stream.ended, HEAD_LEN_MAX as u64)
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

/// A stream whose first chunks were examined and are served again.
struct Replay {
    examined: VecDeque<Bytes>,
    rest: Box<dyn ByteStream>,
    ended: bool,
}

impl Replay {
    /// The first `len` bytes, or all there are.
    fn peek(&mut self, len: usize) -> Result<Vec<u8>, SourceError> {
        let mut available: usize = self.examined.iter().map(Bytes::len).sum();
        while available < len && !self.ended {
            match self.rest.next()? {
                Some(chunk) => {
                    available += chunk.len();
                    self.examined.push_back(chunk);
                }
                None => self.ended = true,
            }
        }
        let mut head = Vec::with_capacity(available.min(len));
        for chunk in &self.examined {
            head.extend_from_slice(&chunk[..chunk.len().min(len - head.len())]);
        }
        Ok(head)
    }
}

impl ByteStream for Replay {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        match self.examined.pop_front() {
            Some(chunk) => Ok(Some(chunk)),
            None if self.ended => Ok(None),
            None => self.rest.next(),
        }
    }
}
