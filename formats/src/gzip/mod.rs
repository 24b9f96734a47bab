//! gzip, RFC 1952: members one after another, each with its own checksum and length.
//!
//! After the last member zero bytes may follow up to the end (tapes and block devices leave them); anything else is
//! refused. `gzip -d` warns of such bytes and ignores them; here they would be the lost part of a disk.

mod bgzf;
mod reader;

use std::io;

use crc32fast::Hasher;

use crate::Error;
use crate::decompress::{Container, Content, Next, Wire};
use crate::inflate::{Inflate, Progress};

pub(crate) use bgzf::begins_with_bgzf;
pub use reader::GzipReader;

const STREAM: &str = "gzip stream";
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Deflate: no other method was ever defined.
const METHOD_DEFLATE: u8 = 8;
/// The history that deflate may refer to.
const WINDOW: u64 = 32 * 1024;

/// Bits of a member header's FLG byte.
mod flag {
    pub const HEADER_CRC: u8 = 1 << 1;
    pub const EXTRA: u8 = 1 << 2;
    pub const NAME: u8 = 1 << 3;
    pub const COMMENT: u8 = 1 << 4;
    pub const RESERVED: u8 = 0xe0;
}

/// A gzip stream: each member is a part; units are runs of BGZF members.
pub(crate) struct Gzip {
    unit_max: usize,
    any_member: bool,
    /// Where the deflate stream of the current member begins.
    body_at: u64,
    inflate: Inflate,
    /// The deflate stream of the current member is over; its trailer has not been examined.
    body_ended: bool,
    crc: Hasher,
    /// Decoded bytes of the current member, modulo 2^32 as its trailer has them.
    len: u32,
}

impl Gzip {
    pub(crate) fn new(unit_max: usize) -> Self {
        Self {
            unit_max,
            any_member: false,
            body_at: 0,
            inflate: Inflate::new(),
            body_ended: false,
            crc: Hasher::new(),
            len: 0,
        }
    }

    /// Whether another member follows; if not, nothing but padding does.
    fn find_member(&self, wire: &mut Wire<'_>) -> io::Result<bool> {
        let start = wire.peek(MAGIC.len())?;
        match start {
            start if start == MAGIC => return Ok(true),
            [] if self.any_member => return Ok(false),
            [] => return Err(Error::Empty { what: STREAM }.into()),
            [part] if *part == MAGIC[0] => return Err(wire.truncated(STREAM)),
            _ if !self.any_member => {
                return Err(wire.corrupt(STREAM, "it does not begin with a member"));
            }
            _ => wire.skip_zeroes()?,
        };
        if !wire.is_at_end()? {
            return Err(Error::TrailingBytes { what: STREAM, at: wire.at() }.into());
        }
        Ok(false)
    }

    fn check_trailer(&mut self, wire: &mut Wire<'_>) -> io::Result<()> {
        let crc = u32::from_le_bytes(wire.array(STREAM)?);
        let len = u32::from_le_bytes(wire.array(STREAM)?);
        if crc != self.crc.clone().finalize() {
            return Err(wire.corrupt(STREAM, "the checksum of a member does not match its content"));
        }
        if len != self.len {
            return Err(wire.corrupt(STREAM, "the length of a member does not match its content"));
        }
        Ok(())
    }
}

impl Container for Gzip {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        if !self.find_member(wire)? {
            return Ok(Next::End);
        }
        self.any_member = true;
        if self.unit_max > 0
            && let Some(unit) = bgzf::take_unit(wire, self.unit_max)?
        {
            return Ok(Next::Unit(unit));
        }
        read_header(wire)?;
        self.body_at = wire.at();
        self.inflate.reset();
        self.body_ended = false;
        self.crc.reset();
        self.len = 0;
        Ok(Next::Inline)
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        while !self.body_ended {
            let input = wire.fill()?;
            let ended = input.is_empty();
            let outcome = self.inflate.inflate(input, out);
            let Progress { consumed, decoded, .. } =
                outcome.map_err(|because| wire.corrupt(STREAM, because))?;
            wire.consume(consumed);
            if let Some(rest) = self.inflate.rest() {
                wire.unread(rest);
                self.body_ended = true;
            } else if ended && decoded == 0 {
                return Err(wire.truncated(STREAM));
            }
            if decoded > 0 {
                self.crc.update(&out[..decoded]);
                self.len = self.len.wrapping_add(decoded as u32); // modulo 2^32, as the trailer
                return Ok(Content::Bytes(decoded));
            }
        }
        self.check_trailer(wire)?;
        Ok(Content::Bytes(0))
    }

    fn window(&self) -> u64 {
        WINDOW
    }
}

/// Skips a member's header: none of its fields matters to a disk.
fn read_header(wire: &mut Wire<'_>) -> io::Result<()> {
    let mut crc = Hasher::new();
    let fixed: [u8; 10] = wire.array(STREAM)?;
    crc.update(&fixed);
    let [_, _, method, flags, ..] = fixed;
    if method != METHOD_DEFLATE {
        return Err(wire.corrupt(STREAM, "a member is not compressed with deflate"));
    }
    if flags & flag::RESERVED != 0 {
        return Err(wire.corrupt(STREAM, "a member has reserved flags"));
    }
    if flags & flag::EXTRA != 0 {
        let len: [u8; 2] = wire.array(STREAM)?;
        crc.update(&len);
        let mut extra = Vec::new();
        wire.take(u16::from_le_bytes(len).into(), &mut extra, STREAM)?;
        crc.update(&extra);
    }
    for text in [flag::NAME, flag::COMMENT] {
        if flags & text != 0 {
            skip_text(wire, &mut crc)?;
        }
    }
    if flags & flag::HEADER_CRC != 0
        && u16::from_le_bytes(wire.array(STREAM)?) != crc.finalize() as u16
    {
        return Err(wire.corrupt(STREAM, "the checksum of a member's header does not match"));
    }
    Ok(())
}

/// Passes over a name or comment and the zero byte behind it.
fn skip_text(wire: &mut Wire<'_>, crc: &mut Hasher) -> io::Result<()> {
    loop {
        let bytes = wire.fill()?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let n = end.map_or(bytes.len(), |end| end + 1);
        if n == 0 {
            return Err(wire.truncated(STREAM));
        }
        crc.update(&bytes[..n]);
        wire.consume(n);
        if end.is_some() {
            return Ok(());
        }
    }
}
