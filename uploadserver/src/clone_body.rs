//! The snappy stream of a clone: a disk, or files in a tar.
//!
//! The framing has a checksum per 64 KiB, and no end marker: its end is that of the body.

use std::io::{self, Read};

use bytes::{Buf, Bytes, BytesMut};
use formats::tar::{Archive, Kind};
use pipeline::{ByteStream, SourceError};
use snap::read::FrameDecoder;

/// Bytes that are decompressed at a time.
const CHUNK_LEN: usize = 256 << 10;
/// Part of the name of the disk's file in a file system.
pub const DISK_NAME: &[u8] = b"disk.img";

/// From the header `x-cdi-content-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneContent {
    /// Every byte of a device.
    Disk,
    Files,
}

impl CloneContent {
    /// `None` for an ordinary upload: another value, or no header.
    pub fn from_header(header: &[u8]) -> Option<Self> {
        match header {
            b"blockdevice-clone" => Some(Self::Disk),
            b"filesystem-clone" => Some(Self::Files),
            _ => None,
        }
    }
}

/// Adapts a [`ByteStream`] to [`Read`].
pub struct StreamReader {
    stream: Box<dyn ByteStream>,
    piece: Bytes,
}

impl StreamReader {
    pub fn new(stream: impl ByteStream + 'static) -> Self {
        Self { stream: Box::new(stream), piece: Bytes::new() }
    }
}

impl Read for StreamReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            match self.stream.next().map_err(io::Error::other)? {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let len = self.piece.len().min(out.len());
        self.piece.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

/// Decodes snappy's framing format.
pub struct SnappyDecoder(FrameDecoder<StreamReader>);

impl SnappyDecoder {
    pub fn new(stream: impl ByteStream + 'static) -> Self {
        Self(FrameDecoder::new(StreamReader::new(stream)))
    }
}

impl Read for SnappyDecoder {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl ByteStream for SnappyDecoder {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        next_chunk(&mut self.0)
    }
}

fn next_chunk(reader: &mut dyn Read) -> Result<Option<Bytes>, SourceError> {
    let mut piece = BytesMut::zeroed(CHUNK_LEN);
    let mut filled = 0;
    while filled < piece.len() {
        match reader.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    piece.truncate(filled);
    Ok((filled > 0).then(|| piece.freeze()))
}

pub struct DiskInTar {
    tar: Archive<SnappyDecoder>,
    length: u64,
    ended: bool,
}

impl DiskInTar {
    /// Skips to the first regular file with [`DISK_NAME`] in its path, as upstream does; `None` if there is none.
    pub fn find(stream: SnappyDecoder) -> io::Result<Option<Self>> {
        let mut tar = Archive::with_holes(stream);
        while let Some(entry) = tar.next_entry()? {
            let is_disk = memchr::memmem::find(&entry.path, DISK_NAME).is_some();
            if is_disk && entry.kind == Kind::Regular {
                return Ok(Some(Self { tar, length: entry.size, ended: false }));
            }
        }
        Ok(None)
    }

    pub fn length(&self) -> u64 {
        self.length
    }
}

impl ByteStream for DiskInTar {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        if let Some(piece) = next_chunk(&mut self.tar)? {
            return Ok(Some(piece));
        }
        self.ended = true;
        // Reads the rest: an interruption after the disk is an error too.
        while self.tar.next_entry()?.is_some() {}
        io::copy(self.tar.input_mut(), &mut io::sink())?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use testkit::{MIB, pattern};

    use super::*;
    use crate::body::testing::{FakeBody, collect};

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.into_inner().unwrap()
    }

    #[test]
    fn framed_disk_is_decoded() {
        for disk in [vec![], vec![0; 1 << 20], pattern(MIB + 513)] {
            let frames = framed(&disk);
            for piece in [1000, 1 << 20] {
                let found =
                    collect(&mut SnappyDecoder::new(FakeBody::new(&frames, piece))).unwrap();
                assert!(found == disk, "{} bytes in pieces of {piece}", disk.len());
            }
        }
    }

    #[test]
    fn skippable_frames_are_skipped() {
        let identifier = b"\xff\x06\x00\x00sNaPpY";
        let frames =
            [&framed(b"ab"), b"\xfe\x03\x00\x00...".as_slice(), b"\x80\x01\x00\x00.", identifier]
                .concat();
        let frames = [&frames, &framed(b"cd")[identifier.len()..]].concat();
        assert_eq!(collect(&mut SnappyDecoder::new(FakeBody::new(&frames, 5))).unwrap(), b"abcd");
    }

    #[test]
    fn damaged_or_truncated_frames_are_rejected() {
        let frames = framed(&pattern(200_000));
        let mut wrong = frames.clone();
        wrong[100] ^= 1;
        let skipped = [&frames, b"\x02\x00\x00\x00".as_slice()].concat();
        for (case, pieces) in [
            ("a bit", FakeBody::new(&wrong, 1000)),
            ("a kind of frame that must not be skipped", FakeBody::new(&skipped, 1000)),
            ("no identifier", FakeBody::new(&frames[10..], 1000)),
            ("cut in a frame", FakeBody::new(&frames[..frames.len() - 1], 1000)),
            ("cut behind a frame", FakeBody::new(&frames, 1000).cut()),
        ] {
            assert!(collect(&mut SnappyDecoder::new(pieces)).is_err(), "{case}");
        }
    }

    #[test]
    fn disk_in_a_tar_is_found() {
        let disk = pattern(300_000);
        let members: [(&str, &[u8]); 3] =
            [("a", b"x"), ("old-disk.img.bak", &disk), ("disk.img", b"y")];
        let Some(tar) = testkit::tar(&members) else { return };
        let open =
            |tar: &[u8]| DiskInTar::find(SnappyDecoder::new(FakeBody::new(&framed(tar), 4096)));
        let mut found = open(&tar).unwrap().unwrap();
        assert_eq!(found.length(), 300_000);
        assert!(collect(&mut found).unwrap() == disk);
        let Some(none) = testkit::tar(&[("disk", b"x")]) else { return };
        assert!(open(&none).unwrap().is_none());
        assert!(open(b"no tar").is_err());

        let frames = framed(&tar);
        let cut = FakeBody::new(&frames[..frames.len() - 1], 4096).cut();
        let mut cut = DiskInTar::find(SnappyDecoder::new(cut)).unwrap().unwrap();
        assert!(collect(&mut cut).is_err(), "the body broke off behind the disk");
    }

    #[test]
    fn only_the_documented_header_values_are_clones() {
        assert_eq!(CloneContent::from_header(b"blockdevice-clone"), Some(CloneContent::Disk));
        assert_eq!(CloneContent::from_header(b"filesystem-clone"), Some(CloneContent::Files));
        for other in [b"".as_slice(), b"kubevirt", b"Blockdevice-Clone"] {
            assert_eq!(CloneContent::from_header(other), None);
        }
    }
}
