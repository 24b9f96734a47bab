//! One gzip member on several threads: chunks of it are decoded before what precedes them is.
//!
//! A deflate stream refers back to its own content, and its blocks begin at any bit. So a [`Speculation`] searches for a
//! block in the middle of its chunk and decodes from there on with a history of placeholders. Later, when the state of
//! the decoder at the beginning of the chunk is known ([`BodyDecoder`]), a [`ChunkDecoder`] decodes up to that block,
//! and only if a block begins exactly there, it uses the rest of the work and replaces the placeholders. Otherwise it decodes
//! the whole chunk as if nothing had been prepared: a wrong guess costs time, never a wrong byte.
//!
//! ```text
//! wire ─► GzipReader: headers, short members, checksums
//!            └─► chunks ─► Speculation (any thread) ─► ChunkDecoder (in the order of their states) ─► content
//! ```
//!
//! No threads here: the caller brings chunks, threads and states together.

mod content;
mod guess;
#[cfg(test)]
mod tests;

use content::{Content, Window};

pub use crate::gzip::GzipReader;
pub use guess::{Speculation, SpeculationMemory};

use crate::inflate::{Inflate, Invalid, Progress, WINDOW};

/// The state of a decoder inside a gzip member.
pub struct BodyDecoder {
    inflate: Inflate,
}

impl BodyDecoder {
    pub(crate) fn new(inflate: Inflate) -> Self {
        Self { inflate }
    }

    /// The content of the member is complete.
    pub(crate) fn has_ended(&self) -> bool {
        self.inflate.rest().is_some()
    }

    pub(crate) fn into_inflate(self) -> Inflate {
        self.inflate
    }
}

/// What one step of a [`ChunkDecoder`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// So many bytes at the beginning of the buffer.
    Bytes(usize),
    /// So many zeroes, which are not in the buffer.
    Zeroes(usize),
    /// The chunk is used up.
    ChunkEnd,
    /// The content of the member is complete.
    BodyEnd,
}

/// Data that is not valid deflate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Bytes of the chunk before the damage was noticed.
    pub at: usize,
    /// As in [`Error::Corrupt`](crate::Error::Corrupt).
    pub because: &'static str,
}

/// Decodes one chunk, given the state at its beginning.
pub struct ChunkDecoder<'a> {
    chunk: &'a [u8],
    /// Bytes of the chunk that `body` has used.
    used: usize,
    /// Of the position behind `prepared`.
    body: BodyDecoder,
    speculation: Option<Speculation>,
    /// What a speculation that came true has decoded.
    prepared: Option<(Content, Window)>,
    /// What is prepared reaches to the end of the chunk, or of the body.
    is_whole: bool,
}

impl<'a> ChunkDecoder<'a> {
    /// `body` is the state at the beginning of `chunk`, of which `speculation` was made.
    pub fn new(chunk: &'a [u8], body: BodyDecoder, speculation: Option<Speculation>) -> Self {
        Self { chunk, used: 0, body, speculation, prepared: None, is_whole: false }
    }

    /// Decodes more into `out`, which is not empty.
    ///
    /// # Errors
    /// [`Damaged`]; the decoder is then of no use any more.
    pub fn decode(&mut self, out: &mut [u8]) -> Result<Decoded, Damaged> {
        loop {
            if let Some((content, window)) = &mut self.prepared
                && let Some(decoded) = content.read(window, out)
            {
                return Ok(decoded);
            }
            if self.body.inflate.rest().is_some() {
                return Ok(Decoded::BodyEnd);
            }
            let at = self.used;
            // Placeholders for what precedes the member must not become bytes.
            let has_window = self.body.inflate.window().len() == WINDOW;
            let speculation = self.speculation.as_ref().filter(|_| has_window);
            let block = speculation.map(|s| s.block() as i64 - 8 * at as i64);
            let decoded = self.body.inflate.inflate_up_to(block, &self.chunk[at..], out);
            let Progress { consumed, decoded, at_block } =
                decoded.map_err(|because: Invalid| Damaged { at, because })?;
            self.used += consumed;
            if at_block {
                self.adopt_speculation();
            }
            if decoded > 0 {
                return Ok(Decoded::Bytes(decoded));
            }
            if self.used == self.chunk.len() && !at_block && self.body.inflate.rest().is_none() {
                return Ok(Decoded::ChunkEnd);
            }
        }
    }

    /// The decoder is where the speculation began.
    fn adopt_speculation(&mut self) {
        let Some(speculation) = self.speculation.take() else { return };
        let window = Window::new(self.body.inflate.window());
        let (content, end) = speculation.resolve(&window);
        self.used = end.used;
        self.body = BodyDecoder::new(end.decoder);
        self.is_whole = end.used == self.chunk.len() && !end.is_memory_full;
        self.prepared = Some((content, window));
    }

    /// The speculation came true.
    pub fn was_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// Bytes of content that are left in the chunk, once that is known before they are decoded: then the state at the
    /// end of the chunk is known too ([`next_state`](Self::next_state)).
    pub fn prepared_len(&self) -> Option<u64> {
        let (content, _) = self.prepared.as_ref()?;
        let ended = self.body.inflate.rest().is_some();
        (self.is_whole && !ended).then(|| content.len())
    }

    /// The state at the end of the chunk, as soon as [`prepared_len`](Self::prepared_len) is known or after
    /// [`Decoded::ChunkEnd`]; that of a complete body after [`Decoded::BodyEnd`]. What is prepared can still be read.
    pub fn next_state(&mut self) -> BodyDecoder {
        std::mem::replace(&mut self.body, BodyDecoder::new(Inflate::new()))
    }

    /// After [`Decoded::BodyEnd`]: the bytes of the chunk that the decoder did not use.
    pub fn unused(&self) -> Vec<u8> {
        let mut unused = self.body.inflate.rest().unwrap_or_default();
        unused.extend_from_slice(&self.chunk[self.used..]);
        unused
    }

    /// The memory of the speculation, if there was one.
    pub fn into_memory(self) -> Option<SpeculationMemory> {
        match self.prepared {
            Some((content, _)) => Some(SpeculationMemory::from_content(content)),
            None => self.speculation.map(Speculation::into_memory),
        }
    }
}
