//! Frames one after another, some of them skippable: what the streams of zstd and LZ4 have in common.

use std::io;

use crate::Error;
use crate::decompress::Wire;

/// The lowest four bits are free.
const MAGIC_SKIPPABLE: u32 = 0x184d_2a50;

/// The header of a frame that holds data, in one format.
pub(crate) trait FrameHeader: Sized {
    /// The name of the stream in errors.
    const STREAM: &'static str;
    /// The first bytes of the frame.
    const MAGIC: [u8; 4];
    /// Bytes that hold every header, the magic number included.
    const LEN_MAX: usize;

    /// Reads the `fields` that follow the magic number. `None`: there are too few.
    fn parse(fields: &[u8]) -> Result<Option<Self>, NoFrame>;
}

/// The kind of a frame, from its header.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<H> {
    Data(H),
    /// Any bytes, of no meaning here.
    Skippable {
        /// Of the whole frame.
        len: u64,
    },
}

/// Why bytes are not the beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoFrame {
    OtherMagic,
    /// The header is not allowed, for this reason.
    BadHeader(&'static str),
}

impl NoFrame {
    fn because(self) -> &'static str {
        match self {
            Self::OtherMagic => "no frame begins here",
            Self::BadHeader(because) => because,
        }
    }
}

impl<H: FrameHeader> Frame<H> {
    /// Reads a frame's header. `None`: it is longer than `head`; [`FrameHeader::LEN_MAX`] bytes are enough for every header.
    pub(crate) fn parse(head: &[u8]) -> Result<Option<Self>, NoFrame> {
        let Some((magic, rest)) = head.split_first_chunk::<4>() else {
            let skippable = MAGIC_SKIPPABLE.to_le_bytes();
            let may_become = match head {
                [] => true,
                [low, high @ ..] => {
                    H::MAGIC.starts_with(head)
                        || (low & 0xf0 == skippable[0] && skippable[1..].starts_with(high))
                }
            };
            return if may_become { Ok(None) } else { Err(NoFrame::OtherMagic) };
        };
        if u32::from_le_bytes(*magic) & !0xf == MAGIC_SKIPPABLE {
            let len = rest.first_chunk().map(|len| 8 + u64::from(u32::from_le_bytes(*len)));
            return Ok(len.map(|len| Self::Skippable { len }));
        }
        if *magic != H::MAGIC {
            return Err(NoFrame::OtherMagic);
        }
        H::parse(rest).map(|header| header.map(Self::Data))
    }
}

/// Passes over skippable frames to one of data, which stays on the wire. `None`: the stream ends. `any_frame`: there was a
/// frame before, of either kind.
pub(crate) fn find<H: FrameHeader>(
    wire: &mut Wire<'_>,
    any_frame: &mut bool,
) -> io::Result<Option<H>> {
    loop {
        let head = wire.peek(H::LEN_MAX)?;
        if head.is_empty() {
            return if *any_frame {
                Ok(None)
            } else {
                Err(Error::Empty { what: H::STREAM }.into())
            };
        }
        let is_short = head.len() < H::LEN_MAX;
        match Frame::<H>::parse(head) {
            Ok(Some(Frame::Data(header))) => {
                *any_frame = true;
                return Ok(Some(header));
            }
            Ok(Some(Frame::Skippable { len })) => {
                wire.skip(len, H::STREAM)?;
                *any_frame = true;
            }
            Ok(None) if is_short => return Err(wire.truncated(H::STREAM)),
            Ok(None) => unreachable!("LEN_MAX bytes hold every header"),
            Err(NoFrame::OtherMagic) if *any_frame => {
                return Err(Error::TrailingBytes { what: H::STREAM, at: wire.at() }.into());
            }
            Err(refused) => return Err(wire.corrupt(H::STREAM, refused.because())),
        }
    }
}
