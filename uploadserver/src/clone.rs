//! What the source of a clone sends: a disk, or files in a tar, in snappy's framing format.
//!
//! The framing has a checksum for every 64 KiB, and no end of its own: that is the body's.

use std::io::{self, Read};

use bytes::{Buf, Bytes, BytesMut};
use formats::tar::{Archive, Kind};
use pipeline::{ByteStream, SourceError};
use snap::read::FrameDecoder;

/// As much is unpacked at a time.
const PIECE: usize = 256 << 10;
/// What the disk in a volume's folder has in its name.
pub const DISK_NAME: &[u8] = b"disk.img";

/// What a clone's body holds, by its header `x-cdi-content-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneContent {
    /// All bytes of a device.
    Disk,
    /// A tar of the files of a volume.
    Files,
}

impl CloneContent {
    /// Any other value, or none, is of an ordinary upload.
    pub fn of(header: &[u8]) -> Option<Self> {
        match header {
            b"blockdevice-clone" => Some(Self::Disk),
            b"filesystem-clone" => Some(Self::Files),
            _ => None,
        }
    }
}

/// A stream as `Read`.
pub struct Reading {
    stream: Box<dyn ByteStream>,
    piece: Bytes,
}

impl Reading {
    /// From its beginning.
    pub fn of(stream: impl ByteStream + 'static) -> Self {
        Self { stream: Box::new(stream), piece: Bytes::new() }
    }
}

impl Read for Reading {
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

/// What is inside of snappy's frames.
pub struct Unframed(FrameDecoder<Reading>);

impl Unframed {
    /// Of a stream that begins with the identifier of the format.
    pub fn new(stream: impl ByteStream + 'static) -> Self {
        Self(FrameDecoder::new(Reading::of(stream)))
    }
}

impl Read for Unframed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl ByteStream for Unframed {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        next_piece(&mut self.0)
    }
}

fn next_piece(reader: &mut dyn Read) -> Result<Option<Bytes>, SourceError> {
    let mut piece = BytesMut::zeroed(PIECE);
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

/// The disk in a tar of files.
pub struct DiskInTar {
    tar: Archive<Unframed>,
    length: u64,
    ended: bool,
}

impl DiskInTar {
    /// Goes to the first file that is named as a disk is; `None` where there is none.
    ///
    /// # Errors
    /// When the tar cannot be read.
    pub fn find(stream: Unframed) -> io::Result<Option<Self>> {
        let mut tar = Archive::with_holes(stream);
        while let Some(entry) = tar.next_entry()? {
            let is_disk = memchr::memmem::find(&entry.path, DISK_NAME).is_some();
            if is_disk && entry.kind == Kind::Regular {
                return Ok(Some(Self { tar, length: entry.size, ended: false }));
            }
        }
        Ok(None)
    }

    /// Bytes of the disk.
    pub fn length(&self) -> u64 {
        self.length
    }
}

impl ByteStream for DiskInTar {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        if let Some(piece) = next_piece(&mut self.tar)? {
            return Ok(Some(piece));
        }
        self.ended = true;
        // A tar that breaks off behind the disk has broken off all the same: so has the body.
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
    use crate::body::testing::{Pieces, collect};

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.into_inner().unwrap()
    }

    #[test]
    fn a_disk_comes_out_of_its_frames_as_it_was() {
        for disk in [vec![], vec![0; 1 << 20], pattern(MIB + 513)] {
            let frames = framed(&disk);
            for piece in [1000, 1 << 20] {
                let found = collect(&mut Unframed::new(Pieces::of(&frames, piece))).unwrap();
                assert!(found == disk, "{} bytes in pieces of {piece}", disk.len());
            }
        }
    }

    #[test]
    fn frames_that_other_writers_add_are_passed_over() {
        let identifier = b"\xff\x06\x00\x00sNaPpY";
        let frames =
            [&framed(b"ab"), b"\xfe\x03\x00\x00...".as_slice(), b"\x80\x01\x00\x00.", identifier]
                .concat();
        let frames = [&frames, &framed(b"cd")[identifier.len()..]].concat();
        assert_eq!(collect(&mut Unframed::new(Pieces::of(&frames, 5))).unwrap(), b"abcd");
    }

    #[test]
    fn what_is_damaged_or_cut_is_no_disk() {
        let frames = framed(&pattern(200_000));
        let mut wrong = frames.clone();
        wrong[100] ^= 1;
        let skipped = [&frames, b"\x02\x00\x00\x00".as_slice()].concat();
        for (case, pieces) in [
            ("a bit", Pieces::of(&wrong, 1000)),
            ("a kind of frame that nobody may skip", Pieces::of(&skipped, 1000)),
            ("no identifier", Pieces::of(&frames[10..], 1000)),
            ("cut in a frame", Pieces::of(&frames[..frames.len() - 1], 1000)),
            ("cut behind a frame", Pieces::of(&frames, 1000).cut()),
        ] {
            assert!(collect(&mut Unframed::new(pieces)).is_err(), "{case}");
        }
    }

    #[test]
    fn the_disk_among_files_is_found() {
        let disk = pattern(300_000);
        let members: [(&str, &[u8]); 3] =
            [("a", b"x"), ("old-disk.img.bak", &disk), ("disk.img", b"y")];
        let Some(tar) = testkit::tar(&members) else { return };
        let open = |tar: &[u8]| DiskInTar::find(Unframed::new(Pieces::of(&framed(tar), 4096)));
        let mut found = open(&tar).unwrap().unwrap();
        assert_eq!(found.length(), 300_000);
        assert!(collect(&mut found).unwrap() == disk);
        let Some(none) = testkit::tar(&[("disk", b"x")]) else { return };
        assert!(open(&none).unwrap().is_none());
        assert!(open(b"no tar").is_err());

        let frames = framed(&tar);
        let cut = Pieces::of(&frames[..frames.len() - 1], 4096).cut();
        let mut cut = DiskInTar::find(Unframed::new(cut)).unwrap().unwrap();
        assert!(collect(&mut cut).is_err(), "the body broke off behind the disk");
    }

    #[test]
    fn only_the_two_documented_contents_are_clones() {
        assert_eq!(CloneContent::of(b"blockdevice-clone"), Some(CloneContent::Disk));
        assert_eq!(CloneContent::of(b"filesystem-clone"), Some(CloneContent::Files));
        for other in [b"".as_slice(), b"kubevirt", b"Blockdevice-Clone"] {
            assert_eq!(CloneContent::of(other), None);
        }
    }
}
