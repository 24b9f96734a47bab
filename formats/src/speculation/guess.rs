//! Decoding from the middle of a deflate stream.

use super::Chunk;
use super::content::{Content, Window, placeholders};
use crate::inflate::{Inflate, Progress, WINDOW, search};

/// Values that are decoded with placeholders before it is examined whether any are left.
const MARKED_STEP: usize = 64 << 10;
/// Bytes that are decoded at a time without.
const PLAIN_STEP: usize = 128 << 10;
/// Places that look like the beginning of a block but are none: more of them in one chunk are hostile.
const ATTEMPTS: usize = 8;

/// A part of a chunk, decoded from what looked like the beginning of a block up to the end of the chunk's last block, or as far
/// as its memory and its time allowed.
pub struct Speculation {
    /// The bit where it begins.
    block: u64,
    pub(super) content: Content,
    end: End<Decoder>,
}

/// Where a decoder has stopped.
pub(super) struct End<D> {
    pub decoder: D,
    /// Bytes of the chunk, and of what follows it, that are decoded or waiting in the decoder.
    pub used: usize,
    /// It was stopped, by its caller or for want of memory: the decoder may have more, even where all of the chunk is used.
    pub is_stopped: bool,
}

enum Decoder {
    /// Its history may hold placeholders.
    Marked(Inflate<u16>),
    /// It knows the last 32 KiB.
    Plain(Inflate),
}

/// Memory for the content of a [`Speculation`], to be used for one chunk after another.
pub struct SpeculationMemory(Content);

impl SpeculationMemory {
    /// For `len` bytes of content that may refer to what precedes them, and as many that do not. Takes up to three times
    /// as much.
    pub fn new(len: usize) -> Self {
        Self(Content::new(len))
    }

    pub(super) fn from_content(content: Content) -> Self {
        Self(content)
    }
}

impl Speculation {
    /// Decodes what it can of a chunk, until `is_due` is true, which it asks for about every 100 KiB of content: what
    /// precedes the chunk is decoded, and without placeholders the rest is decoded faster. Returns the memory where no block
    /// is found.
    ///
    /// # Errors
    /// The memory.
    pub fn decode(
        chunk: &Chunk,
        memory: SpeculationMemory,
        is_due: impl Fn() -> bool,
    ) -> Result<Self, SpeculationMemory> {
        let SpeculationMemory(mut content) = memory;
        let mut from = 0;
        for _ in 0..ATTEMPTS {
            let Some(block) = search::next_block(&chunk.bytes[..chunk.len], from) else { break };
            content.clear();
            if let Some(end) = decode_from(block, chunk, &mut content, &is_due) {
                return Ok(Self { block, content, end });
            }
            from = block + 1;
        }
        Err(SpeculationMemory(content))
    }

    pub(super) fn block(&self) -> u64 {
        self.block
    }

    pub(super) fn into_memory(self) -> SpeculationMemory {
        SpeculationMemory(self.content)
    }

    /// The content and the decoder behind it.
    pub(super) fn resolve(self, window: &Window) -> (Content, End<Inflate>) {
        let End { decoder, used, is_stopped } = self.end;
        let decoder = match decoder {
            Decoder::Plain(inflate) => inflate,
            Decoder::Marked(inflate) => {
                let last = inflate.window();
                let mut bytes = vec![0; last.len()];
                window.replace(last, &mut bytes);
                inflate.with_window(&bytes)
            }
        };
        (self.content, End { decoder, used, is_stopped })
    }
}

/// Nothing where the data turns out to be invalid.
fn decode_from(
    block: u64,
    chunk: &Chunk,
    content: &mut Content,
    is_due: &impl Fn() -> bool,
) -> Option<End<Decoder>> {
    let (mut inflate, mut used) = Inflate::at_block(block, &chunk.bytes, &placeholders());
    loop {
        let (out, filled) = content.marked_space(MARKED_STEP);
        let space = out.len() - filled;
        let stop = Some(chunk.end_behind(used));
        let progress = inflate.inflate_behind(filled, stop, &chunk.bytes[used..], out).ok()?;
        used += progress.consumed;
        content.add_marked(progress.decoded);
        let last = content.last_marked();
        let is_at_end = progress.at_block || progress.decoded < space;
        let is_stopped = !is_at_end && (space == 0 || is_due());
        if is_at_end || is_stopped {
            inflate.append_to_history(last);
            let decoder = Decoder::Marked(inflate);
            return Some(End { decoder, used, is_stopped });
        }
        if last.len() == WINDOW
            && let Some(window) = bytes_without_placeholders(last)
        {
            return decode_plain(inflate.with_window(&window), used, chunk, content, is_due);
        }
    }
}

/// As [`decode_from`], behind the first `used` bytes of the chunk.
fn decode_plain(
    mut inflate: Inflate,
    mut used: usize,
    chunk: &Chunk,
    content: &mut Content,
    is_due: &impl Fn() -> bool,
) -> Option<End<Decoder>> {
    loop {
        let space = content.plain_space(PLAIN_STEP);
        let len = space.len();
        let stop = Some(chunk.end_behind(used));
        let progress = inflate.inflate_up_to(stop, &chunk.bytes[used..], space).ok()?;
        let Progress { consumed, decoded, at_block } = progress;
        used += consumed;
        content.add_plain(decoded);
        let is_at_end = at_block || decoded < len;
        let is_stopped = !is_at_end && (len == 0 || is_due());
        if is_at_end || is_stopped {
            return Some(End { decoder: Decoder::Plain(inflate), used, is_stopped });
        }
    }
}

fn bytes_without_placeholders(window: &[u16]) -> Option<Vec<u8>> {
    let all = window.iter().fold(0, |all, value| all | value);
    (all < 256).then(|| window.iter().map(|value| *value as u8).collect())
}
