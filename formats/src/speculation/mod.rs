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

use crate::inflate::{Inflate, Invalid, Progress, StopBefore, WINDOW};

/// The state of a decoder inside a gzip member.
pub struct BodyDecoder {
    inflate: Inflate,
    /// Bytes of the next chunk that are decoded or waiting in the decoder.
    used: usize,
}

impl BodyDecoder {
    pub(crate) fn new(inflate: Inflate) -> Self {
        Self { inflate, used: 0 }
    }

    /// The content of the member is complete.
    pub(crate) fn has_ended(&self) -> bool {
        self.inflate.rest().is_some()
    }

    pub(crate) fn into_inflate(self) -> Inflate {
        self.inflate
    }
}

/// Compressed bytes, and what follows them: its last block is decoded with it as far as that is known. So the next chunk's first
/// block that can be found is one where this one stops, and nothing of it has to be decoded in between.
pub struct Chunk {
    bytes: Vec<u8>,
    /// Bytes of the chunk itself.
    len: usize,
}

impl Chunk {
    /// `next`: the first bytes of the next chunk.
    pub fn new(mut bytes: Vec<u8>, next: &[u8]) -> Self {
        let len = bytes.len();
        bytes.extend_from_slice(next);
        Self { bytes, len }
    }

    /// Without what follows.
    pub fn into_bytes(self) -> Vec<u8> {
        let Self { mut bytes, len } = self;
        bytes.truncate(len);
        bytes
    }

    /// Bytes of the next chunk that are known.
    pub fn next_len(&self) -> usize {
        self.bytes.len() - self.len
    }

    /// Where to stop, if the input begins behind `used` bytes.
    fn end_behind(&self, used: usize) -> StopBefore {
        StopBefore::FirstBlockFrom(8 * (self.len as i64 - used as i64))
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
    chunk: &'a Chunk,
    /// Bytes of the chunk, and of what follows it, that `inflate` has used.
    used: usize,
    /// At the position behind `prepared`.
    inflate: Inflate,
    speculation: Option<Speculation>,
    /// No block begins where the speculation does.
    is_missed: bool,
    /// What a speculation that came true has decoded.
    prepared: Option<(Content, Window)>,
    /// What is prepared reaches to the end of the chunk, or of the body.
    is_whole: bool,
}

impl<'a> ChunkDecoder<'a> {
    /// `body` is the state at the beginning of `chunk`, of which `speculation` was made.
    pub fn new(chunk: &'a Chunk, body: BodyDecoder, speculation: Option<Speculation>) -> Self {
        let BodyDecoder { inflate, used } = body;
        Self {
            chunk,
            used,
            inflate,
            speculation,
            is_missed: false,
            prepared: None,
            is_whole: false,
        }
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
            if self.inflate.rest().is_some() {
                return Ok(Decoded::BodyEnd);
            }
            let at = self.used;
            // Placeholders for what precedes the member must not become bytes.
            let has_window = self.inflate.window().len() == WINDOW;
            let block = self.speculation.as_ref().filter(|_| has_window && !self.is_missed);
            let block = block.map(|speculation| speculation.block() as i64 - 8 * at as i64);
            let block = block.filter(|block| *block >= self.inflate.next_bit());
            let (stop, end) = match block {
                Some(block) => (StopBefore::Block(block), self.chunk.len.max(at)),
                None => (self.chunk.end_behind(at), self.chunk.bytes.len()),
            };
            let decoded = self.inflate.inflate_up_to(Some(stop), &self.chunk.bytes[at..end], out);
            let Progress { consumed, decoded, at_block } =
                decoded.map_err(|because: Invalid| Damaged { at, because })?;
            self.used += consumed;
            if at_block && block.is_some() {
                self.adopt_speculation();
            }
            if decoded > 0 {
                return Ok(Decoded::Bytes(decoded));
            }
            let is_used_up = self.used == end && !at_block && self.inflate.rest().is_none();
            match block {
                Some(_) => self.is_missed |= is_used_up,
                None if at_block || is_used_up => return Ok(Decoded::ChunkEnd),
                None => (),
            }
        }
    }

    /// The decoder is where the speculation began.
    fn adopt_speculation(&mut self) {
        let Some(speculation) = self.speculation.take() else { return };
        let window = Window::new(self.inflate.window());
        let (content, end) = speculation.resolve(&window);
        self.used = end.used;
        self.inflate = end.decoder;
        self.is_whole = !end.is_stopped;
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
        let ended = self.inflate.rest().is_some();
        (self.is_whole && !ended).then(|| content.len())
    }

    /// The state at the end of the chunk, as soon as [`prepared_len`](Self::prepared_len) is known or after
    /// [`Decoded::ChunkEnd`]; that of a complete body after [`Decoded::BodyEnd`]. What is prepared can still be read.
    pub fn next_state(&mut self) -> BodyDecoder {
        let inflate = std::mem::take(&mut self.inflate);
        BodyDecoder { inflate, used: self.used.saturating_sub(self.chunk.len) }
    }

    /// After [`Decoded::BodyEnd`]: the bytes of the chunk that the decoder did not use, and what is known of the
    /// [next](Chunk::next_len).
    pub fn unused(&self) -> Vec<u8> {
        let mut unused = self.inflate.rest().unwrap_or_default();
        unused.extend_from_slice(&self.chunk.bytes[self.used..]);
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
