//! Zstandard, RFC 8878: frames one after another, some of them skippable.

mod content;
mod frame;
#[cfg(test)]
mod tests;
mod xxh64;

use std::io;

use ::zstd::zstd_safe::{DCtx, DParameter};

use content::FrameContent;
use frame::DataFrame;

use crate::Error;
use crate::decompress::{Container, Content, Limits, Next, Wire};
use crate::frames::{self, FrameHeader};
use crate::sniff::Compression;
use crate::units::{CompressedUnit, GROUP_BYTES};

const STREAM: &str = "zstd stream";

/// A frame of a zstd stream.
pub(crate) type Frame = frames::Frame<DataFrame>;

/// A zstd stream: each frame is a part; units are frames whose headers contain the length of their content.
pub(crate) struct Zstd {
    limits: Limits,
    unit_max: usize,
    any_frame: bool,
    window: u64,
    /// Made for the first inline frame.
    decoder: Option<DCtx<'static>>,
    /// The inline frame, until it is complete and verified.
    frame: Option<FrameContent>,
}

impl Zstd {
    pub(crate) fn new(limits: Limits, unit_max: usize) -> Self {
        Self { limits, unit_max, any_frame: false, window: 0, decoder: None, frame: None }
    }

    /// Passes over skippable frames. `None`: the stream ends.
    fn find_frame(&mut self, wire: &mut Wire<'_>) -> io::Result<Option<DataFrame>> {
        let found = frames::find::<DataFrame>(wire, &mut self.any_frame)?;
        found.iter().try_for_each(|frame| self.admit(frame))?;
        Ok(found)
    }

    /// Rejects a frame with too large a window or with a dictionary.
    fn admit(&mut self, frame: &DataFrame) -> io::Result<()> {
        self.window = self.window.max(frame.window);
        if frame.window > self.limits.window_max {
            let (needed, allowed) = (frame.window, self.limits.window_max);
            return Err(Error::WindowTooLarge { what: STREAM, needed, allowed }.into());
        }
        if frame.dictionary {
            return Err(Error::Unsupported { what: STREAM, feature: "a dictionary" }.into());
        }
        Ok(())
    }

    /// Takes `first` and as many frames behind it as make a worthwhile unit. `None`: `first` is still on the wire.
    fn take_unit(
        &mut self,
        first: DataFrame,
        wire: &mut Wire<'_>,
    ) -> io::Result<Option<CompressedUnit>> {
        let at = wire.at();
        let mut bytes = Vec::new();
        let (mut decoded_len, mut window) = (0, 0);
        let mut next = Some(first);
        while let Some(frame) = next
            && decoded_len < GROUP_BYTES
        {
            let sum = frame.content_len.and_then(|len| len.checked_add(decoded_len));
            let Some(sum) = sum else { break };
            if !frame.take(wire, &mut bytes, self.unit_max)? {
                break;
            }
            decoded_len = sum;
            window = frame.window.max(window);
            next = match Frame::parse(wire.peek(DataFrame::LEN_MAX)?) {
                Ok(Some(Frame::Data(frame))) => Some(frame),
                _ => None, // `find_frame` reads it after this unit
            };
            if let Some(frame) = &next {
                self.admit(frame)?;
            }
        }
        let (kind, limits) = (Compression::Zstd, self.limits);
        Ok((!bytes.is_empty()).then_some(CompressedUnit {
            kind,
            at,
            bytes,
            decoded_len,
            window,
            limits,
        }))
    }

    fn decoder(&mut self) -> Result<&mut DCtx<'static>, Error> {
        match &mut self.decoder {
            Some(decoder) => Ok(decoder),
            none => {
                let decoder = make_decoder(self.limits.window_max);
                Ok(none.insert(decoder.ok_or(Error::OutOfMemory { what: STREAM })?))
            }
        }
    }
}

fn make_decoder(window_max: u64) -> Option<DCtx<'static>> {
    let mut decoder = DCtx::try_create()?;
    // Windows are checked by `admit`, to the byte; libzstd's own limit only must not be lower.
    let window_log = window_max.max(1).ilog2() + 1;
    decoder.set_parameter(DParameter::WindowLogMax(window_log.clamp(10, 31))).ok()?;
    Some(decoder)
}

impl Container for Zstd {
    fn next(&mut self, wire: &mut Wire<'_>) -> io::Result<Next> {
        let Some(frame) = self.find_frame(wire)? else { return Ok(Next::End) };
        if self.unit_max > 0
            && let Some(unit) = self.take_unit(frame, wire)?
        {
            return Ok(Next::Unit(unit));
        }
        let decoder = self.decoder()?;
        self.frame = Some(FrameContent::take_header(frame, decoder, wire)?);
        Ok(Next::Inline)
    }

    fn read(&mut self, wire: &mut Wire<'_>, out: &mut [u8]) -> io::Result<Content> {
        let (Some(frame), Some(decoder)) = (&mut self.frame, &mut self.decoder) else {
            return Ok(Content::Bytes(0));
        };
        let content = frame.read(decoder, wire, out)?;
        if content == Content::Bytes(0) {
            self.frame = None;
        }
        Ok(content)
    }

    fn window(&self) -> u64 {
        self.window
    }
}

/// Whether a stream begins with a frame that can become a unit.
pub(crate) fn begins_with_unit(mut head: &[u8], unit_max: usize) -> bool {
    loop {
        match Frame::parse(head) {
            // Data that cannot be compressed grows by a few bytes; data that can does not matter.
            Ok(Some(Frame::Data(frame))) => {
                return frame.content_len.is_some_and(|len| len < unit_max as u64);
            }
            Ok(Some(Frame::Skippable { len })) => {
                let Some(rest) = usize::try_from(len).ok().and_then(|len| head.get(len..)) else {
                    return false;
                };
                head = rest;
            }
            Ok(None) | Err(_) => return false,
        }
    }
}
