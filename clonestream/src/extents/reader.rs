//! Decoding. The input is not trusted: lengths are checked before memory is allocated for them.

use std::io::{self, Read};

use super::entry::{Entry, EntryKind, PAYLOAD_MAX};
use super::frame::{Coding, HEADER_LEN, Header, Kind, PREAMBLE_LEN, Preamble};
use super::{DATA_MAX, WHAT};
use crate::Error;
use crate::offer::StreamPosition;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The following content belongs to this entry.
    Entry {
        /// From 0.
        index: u64,
        entry: Entry,
    },
    Data(DataFrame),
    Zero {
        /// Offset in the entry's content.
        at: u64,
        len: u64,
    },
}

/// Content as received: any thread may decompress it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFrame {
    /// Offset in the entry's content.
    pub at: u64,
    len: u32,
    coding: Coding,
    sum: u32,
    payload: Vec<u8>,
    /// Offset of the frame in the stream, for errors.
    stream_at: u64,
}

impl DataFrame {
    /// Bytes after decompression; at most [`DATA_MAX`].
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Always false: the reader rejects empty data.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Decompresses into the beginning of `out` and verifies the checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    ///
    /// # Panics
    /// When `out` is shorter than [`DataFrame::len`].
    pub fn unpack(&self, out: &mut [u8]) -> Result<(), Error> {
        let out = &mut out[..self.len()];
        let corrupt = |because| Error::Corrupt { what: WHAT, at: self.stream_at, because };
        match self.coding {
            Coding::Plain => out.copy_from_slice(&self.payload), // same length, checked by the reader
            Coding::Lz4 => match lz4_flex::block::decompress_into(&self.payload, out) {
                Ok(len) if len == self.len() => {}
                _ => return Err(corrupt("the data cannot be decompressed")),
            },
            // All at once into `out`: it needs no window, whatever the frame's header demands.
            Coding::Zstd => match zstd::bulk::decompress_to_buffer(&self.payload, out) {
                Ok(len) if len == self.len() => {}
                _ => return Err(corrupt("the data cannot be decompressed")),
            },
        }
        if crc_fast::crc32_iscsi(out) != self.sum {
            return Err(corrupt("the checksum of data is wrong"));
        }
        Ok(())
    }
}

/// Decodes one stream.
pub struct ExtentReader<R> {
    input: R,
    preamble: Preamble,
    chain: u32,
    /// Bytes of the stream that were read.
    stream_at: u64,
    next_entry: u64,
    /// Offset in the content of the current entry, and its size.
    at: u64,
    size: u64,
    content: u64,
    /// The entry is a disk: no other may follow.
    is_disk: bool,
    ended: bool,
}

impl<R: Read> ExtentReader<R> {
    /// Reads the preamble.
    ///
    /// # Errors
    /// Those of the input; [`Error`] inside for another format or version.
    pub fn open(mut input: R) -> io::Result<Self> {
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

    pub fn preamble(&self) -> &Preamble {
        &self.preamble
    }

    /// Everything before this position has been returned.
    pub fn position(&self) -> StreamPosition {
        match self.next_entry.checked_sub(1) {
            Some(entry) if self.next_entry > self.preamble.begin.entry => {
                StreamPosition { entry, at: self.at }
            }
            _ => self.preamble.begin,
        }
    }

    /// `None` after the end frame of a complete stream.
    ///
    /// # Errors
    /// Those of the input; [`Error`] inside for a damaged or truncated stream. Do not call it again then.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        if self.ended {
            return Ok(None);
        }
        let at = self.stream_at;
        let mut bytes = [0; HEADER_LEN];
        self.read_exact(&mut bytes)?;
        let header = Header::parse(&bytes, &mut self.chain, at)?;
        let frame = self.read_frame_body(header);
        frame.map_err(|refused| match refused {
            FrameError::Corrupt(because) => Error::Corrupt { what: WHAT, at, because }.into(),
            FrameError::Input(error) => error,
        })
    }

    fn read_frame_body(&mut self, header: Header) -> Result<Option<Frame>, FrameError> {
        let Header { kind, coding, payload_len, at, len, payload_sum } = header;
        let is_plain = coding == Coding::Plain;
        match kind {
            Kind::Entry => {
                self.check_complete()?;
                let fits = payload_len as usize <= PAYLOAD_MAX && is_plain;
                if at != self.next_entry || at == u64::MAX || self.is_disk || !fits {
                    return Err(FrameError::Corrupt("an unexpected entry"));
                }
                let payload = self.read_payload(payload_len)?;
                if crc_fast::crc32_iscsi(&payload) != payload_sum {
                    return Err(FrameError::Corrupt("the checksum of an entry is wrong"));
                }
                let entry = Entry::parse(&payload, len).map_err(FrameError::Corrupt)?;
                let is_first = at == self.preamble.begin.entry;
                self.at = if is_first { self.preamble.begin.at } else { 0 };
                self.size = len;
                self.is_disk = entry.kind == EntryKind::Disk;
                if self.at > len || self.is_disk && at > 0 {
                    return Err(FrameError::Corrupt(
                        "an entry contradicts the start of the stream",
                    ));
                }
                self.next_entry += 1;
                Ok(Some(Frame::Entry { index: at, entry }))
            }
            Kind::Data => {
                let fits = match coding {
                    Coding::Plain => u64::from(payload_len) == len,
                    Coding::Lz4 | Coding::Zstd => u64::from(payload_len) < len && payload_len > 0,
                };
                if len > DATA_MAX as u64 || !fits {
                    return Err(FrameError::Corrupt("the length of data is invalid"));
                }
                self.check_offset(at, len)?;
                let stream_at = self.stream_at;
                let payload = self.read_payload(payload_len)?;
                // After the payload: `position` must not count a frame that was cut off.
                self.advance(len)?;
                let (len, sum) = (len as u32, payload_sum);
                Ok(Some(Frame::Data(DataFrame { at, len, coding, sum, payload, stream_at })))
            }
            Kind::Zero => {
                if payload_len > 0 || payload_sum > 0 || !is_plain {
                    return Err(FrameError::Corrupt("zeroes have a payload"));
                }
                self.check_offset(at, len)?;
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
                    return Err(FrameError::Corrupt("the end does not match the stream"));
                }
                if read_up_to(&mut self.input, &mut [0])? > 0 {
                    return Err(FrameError::Corrupt("bytes follow the end"));
                }
                self.ended = true;
                Ok(None)
            }
        }
    }

    fn check_complete(&self) -> Result<(), FrameError> {
        if self.at == self.size {
            return Ok(());
        }
        Err(FrameError::Corrupt("an entry lacks content"))
    }

    fn check_offset(&self, at: u64, len: u64) -> Result<(), FrameError> {
        if at != self.at || len == 0 || len > self.size - self.at {
            return Err(FrameError::Corrupt("content has an unexpected offset or length"));
        }
        Ok(())
    }

    fn advance(&mut self, len: u64) -> Result<(), FrameError> {
        let more = self.content.checked_add(len);
        self.content = more.ok_or(FrameError::Corrupt("more than 2^64 bytes of content"))?;
        self.at += len;
        Ok(())
    }

    /// The caller has checked that `len` is at most [`DATA_MAX`].
    fn read_payload(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut payload = vec![0; len as usize];
        self.read_exact(&mut payload)?;
        Ok(payload)
    }

    fn read_exact(&mut self, out: &mut [u8]) -> io::Result<()> {
        let filled = read_up_to(&mut self.input, out)?;
        self.stream_at += filled as u64;
        if filled < out.len() {
            return Err(Error::Truncated { what: WHAT, at: self.stream_at }.into());
        }
        Ok(())
    }
}

enum FrameError {
    Corrupt(&'static str),
    Input(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Input(error)
    }
}

/// Fills `out`, or as much of it as the input has.
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
