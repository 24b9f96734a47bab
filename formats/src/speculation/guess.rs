//! Decoding from the middle of a deflate stream.

use super::content::{Content, Window, placeholders};
use crate::inflate::{Inflate, Progress, WINDOW, search};

/// Values that are decoded with placeholders before it is examined whether any are left.
const MARKED_STEP: usize = 64 << 10;
/// Bytes that are decoded at a time without.
const PLAIN_STEP: usize = 128 << 10;
/// Places that look like the beginning of a block but are none: more of them in one chunk are hostile.
const ATTEMPTS: usize = 8;

/// A part of a chunk, decoded from what looked like the beginning of a block up to the end of the chunk, or as far as its
/// memory allowed.
pub struct Speculation {
    /// The bit where it begins.
    block: u64,
    pub(super) content: Content,
    end: End<Decoder>,
}

/// Where a decoder has stopped.
pub(super) struct End<D> {
    pub decoder: D,
    /// Bytes of the chunk that are decoded or waiting in the decoder.
    pub used: usize,
    /// There was no more memory: the decoder may have more, even where all of the chunk is used.
    pub is_memory_full: bool,
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
    /// Decodes what it can of a chunk. Returns the memory where no block is found.
    ///
    /// # Errors
    /// The memory.
    pub fn decode(chunk: &[u8], memory: SpeculationMemory) -> Result<Self, SpeculationMemory> {
        let SpeculationMemory(mut content) = memory;
        let mut from = 0;
        for _ in 0..ATTEMPTS {
            let Some(block) = search::next_block(chunk, from) else { break };
            content.clear();
            if let Some(end) = decode_from(block, chunk, &mut content) {
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
        let End { decoder, used, is_memory_full } = self.end;
        let decoder = match decoder {
            Decoder::Plain(inflate) => inflate,
            Decoder::Marked(inflate) => {
                let last = inflate.window();
                let mut bytes = vec![0; last.len()];
                window.replace(last, &mut bytes);
                inflate.with_window(&bytes)
            }
        };
        (self.content, End { decoder, used, is_memory_full })
    }
}

/// Nothing where the data turns out to be invalid.
fn decode_from(block: u64, chunk: &[u8], content: &mut Content) -> Option<End<Decoder>> {
    let (mut inflate, mut used) = Inflate::at_block(block, chunk, &placeholders());
    loop {
        let (out, filled) = content.marked_space(MARKED_STEP);
        let space = out.len() - filled;
        let progress = inflate.inflate_behind(filled, &chunk[used..], out).ok()?;
        used += progress.consumed;
        content.add_marked(progress.decoded);
        let last = content.last_marked();
        if progress.decoded < space || space == 0 {
            inflate.append_to_history(last);
            let decoder = Decoder::Marked(inflate);
            return Some(End { decoder, used, is_memory_full: space == 0 });
        }
        if last.len() == WINDOW
            && let Some(window) = bytes_without_placeholders(last)
        {
            return decode_plain(inflate.with_window(&window), used, chunk, content);
        }
    }
}

/// As [`decode_from`], behind the first `used` bytes of the chunk.
fn decode_plain(
    mut inflate: Inflate,
    mut used: usize,
    chunk: &[u8],
    content: &mut Content,
) -> Option<End<Decoder>> {
    loop {
        let space = content.plain_space(PLAIN_STEP);
        let len = space.len();
        let Progress { consumed, decoded, .. } = inflate.inflate(&chunk[used..], space).ok()?;
        used += consumed;
        content.add_plain(decoded);
        if decoded < len || len == 0 {
            let decoder = Decoder::Plain(inflate);
            return Some(End { decoder, used, is_memory_full: len == 0 });
        }
    }
}

fn bytes_without_placeholders(window: &[u16]) -> Option<Vec<u8>> {
    let all = window.iter().fold(0, |all, value| all | value);
    (all < 256).then(|| window.iter().map(|value| *value as u8).collect())
}
