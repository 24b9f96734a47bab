//! tar archives, read as they come: header by header, content in between.
//!
//! ```text
//!  │ header │ content, to whole blocks │ header of a link │ header │ content │ … │ zeroes, zeroes │
//!     512                                      512
//! ```
//!
//! Read are V7, ustar, pax and GNU archives, with names and sizes of any length. Nothing is opened, created or followed:
//! a path is untrusted bytes, which the caller has to check.
//!
//! An archive may end with its last entry: some writers leave the two blocks of zeroes out. Inside an entry it may not.

mod header;
mod holes;
mod pax;

use std::io::{self, Read};

use crate::Error;
use crate::bytes::is_zero;
use header::{Header, Type, unsupported};
use holes::{Map, Next};

/// Headers and content are counted in blocks.
pub(crate) const BLOCK: u64 = 512;
/// Long names and pax records are read into memory: as much of them, for one entry.
const RECORDS_MAX: u64 = 1 << 20;
/// As messages call an archive.
const WHAT: &str = "tar archive";

/// One member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written, not examined: may be absolute, hold `..`, or no UTF-8.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes of its content; 0 for all but regular files.
    pub size: u64,
    /// Permission bits, and nothing else.
    pub mode: u32,
}

/// What an [`Entry`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file, whose content follows.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link to this target, as written.
    Symlink(Vec<u8>),
    /// Another name of the entry of this path, as written.
    HardLink(Vec<u8>),
    /// A device, a pipe, or what only some writer knows.
    Other,
}

/// Whether a stream that begins with `head` is a tar archive: its first block is a header, with the right checksum.
pub fn is_tar(head: &[u8]) -> bool {
    head.get(..BLOCK as usize).is_some_and(|block| Header::parse(block, 0).is_ok())
}

/// Reads an archive from its first byte to its last.
///
/// [`next_entry`](Self::next_entry) goes to the next entry; then the archive itself reads as the content of that entry.
#[derive(Debug)]
pub struct Archive<R> {
    input: R,
    /// Bytes of the archive read so far.
    at: u64,
    /// Of the entry's content, still to come.
    content: u64,
    padding: u64,
    ended: bool,
    /// Files with holes are read.
    holes: bool,
    /// Of the entry, if it has holes.
    map: Option<Map>,
}

impl<R: Read> Archive<R> {
    /// An archive that begins at the next byte of `input`. Its files lie in it as they are: one with holes is refused.
    pub fn new(input: R) -> Self {
        Self { input, at: 0, content: 0, padding: 0, ended: false, holes: false, map: None }
    }

    /// The same, for callers that read files with holes too. They may be far larger than what is in the archive: see
    /// [`skip_hole`](Self::skip_hole).
    pub fn with_holes(input: R) -> Self {
        Self { holes: true, ..Self::new(input) }
    }

    /// The next entry, in the order of the archive; what was not read of the one before is skipped. `None`: the archive
    /// has ended, and whatever follows its end is not examined.
    ///
    /// # Errors
    /// Those of the input, and [`Error`] inside, as for [`decompress::reader`](crate::decompress::reader), when the
    /// archive is damaged, cut short, or has an entry with holes or of several volumes.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut overrides = pax::Overrides::default();
        let mut records = 0;
        while let Some((header, header_at)) = self.next_header()? {
            match header.kind {
                Type::Pax | Type::LongName | Type::LongLink => {
                    records += header.size;
                    if records > RECORDS_MAX {
                        return Err(corrupt(header_at, "its names are too long").into());
                    }
                    self.enter(header.size);
                    let mut bytes = Vec::new();
                    self.read_to_end(&mut bytes)?; // at most RECORDS_MAX
                    overrides.read_entry(header.kind, &bytes, header_at)?;
                }
                Type::PaxGlobal => self.enter(header.size),
                kind => {
                    let (mut entry, holes) = overrides.apply(header, kind)?;
                    match holes {
                        None => self.enter(entry.size),
                        Some(_) if !self.holes => {
                            return Err(unsupported("a file with holes").into());
                        }
                        Some(holes) => {
                            let map = self.map(holes, entry.size, header_at)?;
                            entry.size = map.size();
                            self.map = Some(map);
                        }
                    }
                    return Ok(Some(entry));
                }
            }
        }
        if overrides != pax::Overrides::default() {
            return Err(Error::Truncated { what: WHAT, at: self.at }.into());
        }
        Ok(None)
    }

    /// Bytes of the content of the present entry that were not read yet.
    pub fn left(&self) -> u64 {
        self.map.as_ref().map_or(self.content, Map::left)
    }

    /// How many zeroes come next without being in the archive. They count as read then.
    pub fn skip_hole(&mut self) -> u64 {
        match self.map.as_mut().map(|map| (map.next(), map)) {
            Some((Next::Hole(length), map)) => {
                map.advance(length);
                length
            }
            _ => 0,
        }
    }

    /// Bytes of the archive that were read.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// What it reads from, which stands behind the bytes that were read.
    pub fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// The same.
    pub fn into_inner(self) -> R {
        self.input
    }

    fn enter(&mut self, size: u64) {
        self.content = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    /// The next header and where it begins.
    fn next_header(&mut self) -> io::Result<Option<(Header, u64)>> {
        if self.ended {
            return Ok(None);
        }
        self.skip()?;
        let at = self.at;
        let Some(block) = self.block()? else {
            self.ended = true;
            return Ok(None);
        };
        if !is_zero(&block) {
            return Ok(Some((Header::parse(&block, at)?, at)));
        }
        self.ended = true;
        match self.block()? {
            Some(block) if !is_zero(&block) => {
                Err(corrupt(at, "a block of zeroes is followed by something else").into())
            }
            _ => Ok(None),
        }
    }

    /// A whole block, or the end.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK as usize]>> {
        let mut block = [0; BLOCK as usize];
        let mut filled = 0;
        while filled < block.len() {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(Error::Truncated { what: WHAT, at: self.at }.into()),
                Ok(n) => {
                    filled += n;
                    self.at += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(block))
    }

    fn skip(&mut self) -> io::Result<()> {
        self.map = None;
        let mut scrap = [0; 16 << 10];
        while self.content + self.padding > 0 {
            let most = (scrap.len() as u64).min(self.content + self.padding) as usize;
            match self.input.read(&mut scrap[..most]) {
                Ok(0) => return Err(Error::Truncated { what: WHAT, at: self.at }.into()),
                Ok(n) => {
                    let of_content = self.content.min(n as u64);
                    self.content -= of_content;
                    self.padding -= n as u64 - of_content;
                    self.at += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The content of the entry that was last returned: `Ok(0)` at its end.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let next = self.map.as_mut().map_or(Next::Data(self.content), Map::next);
        let (Next::Hole(most) | Next::Data(most)) = next else { return Ok(0) };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(out.len());
        if most == 0 {
            return Ok(0);
        }
        let n = match next {
            Next::Hole(_) => {
                out[..most].fill(0);
                most
            }
            _ => {
                let n = self.input.read(&mut out[..most])?;
                if n == 0 {
                    return Err(Error::Truncated { what: WHAT, at: self.at }.into());
                }
                self.content -= n as u64;
                self.at += n as u64;
                n
            }
        };
        if let Some(map) = &mut self.map {
            map.advance(n as u64);
        }
        Ok(n)
    }
}

pub(crate) fn corrupt(at: u64, because: &'static str) -> Error {
    Error::Corrupt { what: WHAT, at, because }
}
