//! The index at the end of a stream: the lengths of its blocks once more. (The .xz File Format, section 4.)

use std::hash::{DefaultHasher, Hasher};
use std::io;

use super::STREAM;
use super::header::{BlockHeader, NumberReader};
use super::lzma2::BlockWalk;
use crate::decompress::Wire;

/// What the blocks of a stream were, in a few bytes however many there are: two lists of lengths are the same when
/// their hashes are. A collision gains an attacker nothing, since the blocks have checksums of their own.
#[derive(Clone, Default)]
pub(super) struct BlockTally {
    count: u64,
    lengths: DefaultHasher,
    index_len: u64,
}

impl BlockTally {
    /// Counts a block, unless its header promised something else.
    pub(super) fn add(
        &mut self,
        walk: &BlockWalk,
        header: &BlockHeader,
    ) -> Result<(), &'static str> {
        let agrees = |promise: Option<u64>, len| promise.is_none_or(|promised| promised == len);
        if !agrees(header.packed_len, walk.packed_len())
            || !agrees(header.unpacked_len, walk.unpacked_len())
        {
            return Err("the length of a block differs from its header");
        }
        self.push(walk.unpadded_len(), walk.unpacked_len());
        Ok(())
    }

    fn push(&mut self, unpadded_len: u64, unpacked_len: u64) {
        self.count += 1;
        self.lengths.write_u64(unpadded_len);
        self.lengths.write_u64(unpacked_len);
    }

    /// Reads the index, which has to list the blocks that were seen.
    pub(super) fn check_index(&mut self, wire: &mut Wire<'_>) -> io::Result<()> {
        let mut index = Index { wire, crc: crc32fast::Hasher::new(), len: 0 };
        index.byte()?; // the zero that marks it as no block
        let count = index.number()?;
        let mut listed = Self::default();
        while listed.count < count.min(self.count) {
            let unpadded_len = index.number()?;
            listed.push(unpadded_len, index.number()?);
        }
        if count != self.count || listed.lengths.finish() != self.lengths.finish() {
            return Err(index.wire.corrupt(STREAM, "its index lists other blocks"));
        }
        while !index.len.is_multiple_of(4) {
            if index.byte()? != 0 {
                return Err(index.wire.corrupt(STREAM, "its index has bad padding"));
            }
        }
        self.index_len = index.len + 4;
        let crc = index.crc.finalize();
        if u32::from_le_bytes(wire.array(STREAM)?) != crc {
            return Err(wire.corrupt(STREAM, "the checksum of its index does not match"));
        }
        Ok(())
    }

    /// Bytes of the index that was checked.
    pub(super) fn index_len(&self) -> u64 {
        self.index_len
    }
}

/// The index as it is read: it may be long, so nothing of it is kept.
struct Index<'a, 'w> {
    wire: &'a mut Wire<'w>,
    crc: crc32fast::Hasher,
    len: u64,
}

impl Index<'_, '_> {
    fn byte(&mut self) -> io::Result<u8> {
        let [byte] = self.wire.array(STREAM)?;
        self.crc.update(&[byte]);
        self.len += 1;
        Ok(byte)
    }

    fn number(&mut self) -> io::Result<u64> {
        let mut reader = NumberReader::default();
        loop {
            let byte = self.byte()?;
            match reader.push(byte) {
                Some(Some(number)) => return Ok(number),
                Some(None) => (),
                None => return Err(self.wire.corrupt(STREAM, "its index holds an invalid number")),
            }
        }
    }
}
