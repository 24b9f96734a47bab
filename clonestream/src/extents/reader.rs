//! Taking a stream apart. Any bytes may come: what is not a stream is refused before anything large is made of it.

use std::io::{self, Read};

use super::entry::{Entry, EntryKind, PAYLOAD_MAX};
use super::frame::{Coding, HEADER_LEN, Header, Kind, PREAMBLE_LEN, Preamble};
use super::{DATA_MAX, WHAT};
use crate::Error;
use crate::offer::Position;

/// The next of what a stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// From here on it is about this.
    Entry {
        /// Its number, from 0.
        index: u64,
        /// What it is.
        entry: Entry,
    },
    /// Content.
    Data(Data),
    /// Content that is zero.
    Zero {
        /// Where it begins.
        at: u64,
        /// Its bytes.
        len: u64,
    },
}

/// Content as it was sent: any thread may unpack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Where it begins.
    pub at: u64,
    len: u32,
    coding: Coding,
    sum: u32,
    payload: Vec<u8>,
    /// Of the frame.
    stream_at: u64,
}

impl Data {
    /// Bytes when unpacked; at most [`DATA_MAX`].
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// There are none, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Unpacks into the beginning of `out`, and checks the sum.
    ///
    /// # Errors
    /// When it is not what was sent.
    ///
    /// # Panics
    /// When `out` is shorter than [`Data::len`].
    pub fn unpack(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = &mut out[..self.len()];
        let corrupt = |because| Error::Corrupt { what: WHAT, at: self.stream_at, because };
        match self.coding {
            Coding::Plain => out.copy_from_slice(&self.payload), // as long, or it was refused
            Coding::Lz4 => match lz4_flex::block::decompress_into(&self.payload, out) {
                Ok(len) if len == self.len() => {}
                _ => return Err(corrupt("data cannot be decompressed")),
            },
        }
        if crc_fast::crc32_iscsi(out) != self.sum {
            return Err(corrupt("the checksum of data is wrong"));
        }
        Ok(())
    }
}

/// Reads one stream from its first byte to its end.
pub struct Reader<R> {
    input: R,
    preamble: Preamble,
    chain: u32,
    /// Bytes of the stream read so far.
    stream_at: u64,
    next_entry: u64,
    /// Of the entry's content: where it goes on, and where it ends.
    at: u64,
    size: u64,
    content: u64,
    /// A disk is all there is.
    is_disk: bool,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the preamble.
    ///
    /// # Errors
    /// Those of the input, and [`Error`] inside where it is no stream of this kind and version.
    pub fn begin(mut input: R) -> io::Result<Self> {
        let mut bytes = [0; PREAMBLE_LEN];
        let filled = read_up_to(&mut input, &mut bytes)?;
        if filled < bytes.len() {
            return Err(Error::Truncated { what: WHAT, at: filled as u64 }.into());
        }
        let preamble = Preamble::parse(&bytes)?;
        Ok(Self {
            input,
            preamble,
            chain: crc_fast::crc32_iscsi(&bytes),
            stream_at: PREAMBLE_LEN as u64,
            next_entry: preamble.begin.entry,
            at: 0,
            size: 0,
            content: 0,
            is_disk: false,
            ended: false,
        })
    }

    /// What the stream said of itself.
    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// All before this place has been returned.
    pub fn position(&self) -> Position {
        match self.next_entry.checked_sub(1) {
            Some(entry) if self.next_entry > self.preamble.begin.entry => {
                Position { entry, at: self.at }
            }
            _ => self.preamble.begin,
        }
    }

    /// The next frame. `None`: the stream has come to its end, and was complete.
    ///
    /// # Errors
    /// Those of the input, and [`Error`] inside where the stream is damaged or cut short. The reader is of no use then.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        if self.ended {
            return Ok(None);
        }
        let at = self.stream_at;
        let mut bytes = [0; HEADER_LEN];
        self.fill(&mut bytes)?;
        let header = Header::parse(&bytes, &mut self.chain, at)?;
        let frame = self.take(header);
        frame.map_err(|refused| match refused {
            Refused::Corrupt(because) => Error::Corrupt { what: WHAT, at, because }.into(),
            Refused::Input(error) => error,
        })
    }

    fn take(&mut self, header: Header) -> Result<Option<Frame>, Refused> {
        let Header { kind, coding, payload_len, at, len, payload_sum } = header;
        let is_plain = coding == Coding::Plain;
        match kind {
            Kind::Entry => {
                self.check_complete()?;
                let fits = payload_len as usize <= PAYLOAD_MAX && is_plain;
                if at != self.next_entry || at == u64::MAX || self.is_disk || !fits {
                    return Err(Refused::Corrupt("an entry stands where none can be"));
                }
                let payload = self.payload(payload_len)?;
                if crc_fast::crc32_iscsi(&payload) != payload_sum {
                    return Err(Refused::Corrupt("the checksum of an entry is wrong"));
                }
                let entry = Entry::parse(&payload, len).map_err(Refused::Corrupt)?;
                let is_first = at == self.preamble.begin.entry;
                self.at = if is_first { self.preamble.begin.at } else { 0 };
                self.size = len;
                self.is_disk = entry.kind == EntryKind::Disk;
                if self.at > len || self.is_disk && at > 0 {
                    return Err(Refused::Corrupt("an entry does not fit what came before"));
                }
                self.next_entry += 1;
                Ok(Some(Frame::Entry { index: at, entry }))
            }
            Kind::Data => {
                let fits = match coding {
                    Coding::Plain => u64::from(payload_len) == len,
                    Coding::Lz4 => u64::from(payload_len) < len && payload_len > 0,
                };
                if len > DATA_MAX as u64 || !fits {
                    return Err(Refused::Corrupt("the length of data is impossible"));
                }
                self.check_place(at, len)?;
                let stream_at = self.stream_at;
                let payload = self.payload(payload_len)?;
                // Only now: a frame that was cut off is none.
                self.advance(len)?;
                let (len, sum) = (len as u32, payload_sum);
                Ok(Some(Frame::Data(Data { at, len, coding, sum, payload, stream_at })))
            }
            Kind::Zero => {
                if payload_len > 0 || payload_sum > 0 || !is_plain {
                    return Err(Refused::Corrupt("zeroes have a payload"));
                }
                self.check_place(at, len)?;
                self.advance(len)?;
                Ok(Some(Frame::Zero { at, len }))
            }
            Kind::End => {
                self.check_complete()?;
                let is_empty = self.next_entry == self.preamble.begin.entry;
                let is_whole = at == self.next_entry
                    && len == self.content
                    && payload_len == 0
                    && payload_sum == 0
                    && is_plain
                    && !(is_empty && self.preamble.begin.at > 0);
                if !is_whole {
                    return Err(Refused::Corrupt("the end is that of another stream"));
                }
                if read_up_to(&mut self.input, &mut [0])? > 0 {
                    return Err(Refused::Corrupt("something follows the end"));
                }
                self.ended = true;
                Ok(None)
            }
        }
    }

    fn check_complete(&self) -> Result<(), Refused> {
        if self.at == self.size {
            return Ok(());
        }
        Err(Refused::Corrupt("an entry lacks content"))
    }

    fn check_place(&self, at: u64, len: u64) -> Result<(), Refused> {
        if at != self.at || len == 0 || len > self.size - self.at {
            return Err(Refused::Corrupt("content stands where it does not belong"));
        }
        Ok(())
    }

    fn advance(&mut self, len: u64) -> Result<(), Refused> {
        let more = self.content.checked_add(len);
        self.content = more.ok_or(Refused::Corrupt("there is more than can be"))?;
        self.at += len;
        Ok(())
    }

    /// At most [`DATA_MAX`] bytes, which somebody has checked.
    fn payload(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut payload = vec![0; len as usize];
        self.fill(&mut payload)?;
        Ok(payload)
    }

    fn fill(&mut self, out: &mut [u8]) -> io::Result<()> {
        let filled = read_up_to(&mut self.input, out)?;
        self.stream_at += filled as u64;
        if filled < out.len() {
            return Err(Error::Truncated { what: WHAT, at: self.stream_at }.into());
        }
        Ok(())
    }
}

/// Why a frame is not taken.
enum Refused {
    Corrupt(&'static str),
    Input(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Input(error)
    }
}

/// Fills `out` as far as the input goes.
fn read_up_to(input: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match input.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
