//! Guest disks that consist of runs: bytes that hold their own offsets, bytes that compress well or not at all, and zeroes
//! between them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;

use crate::random::Random;

/// Bytes in which each aligned 8-byte word holds its own offset, little endian: a shift, a gap or a repetition is visible.
pub fn pattern(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; to_usize(len)];
    fill_pattern(&mut bytes, 0);
    bytes
}

/// Words between random bytes, noise, and runs of zeroes and of other bytes, all of them short: gzip leaves about a third of
/// it, in many blocks.
pub fn short_runs(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut next = |bound: usize| random.below(bound as u64) as usize;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let run = 1 + next(6000);
        match next(12) {
            0 => bytes.resize(bytes.len() + 5 * run, 0),
            1 => bytes.resize(bytes.len() + run, next(256) as u8),
            2..5 => bytes.extend((0..run).map(|_| next(256) as u8)),
            _ => {
                for _ in 0..run / 5 {
                    bytes.extend_from_slice(["one ", "two ", "three "][next(3)].as_bytes());
                    bytes.push(next(256) as u8);
                }
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// What a run of data consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Each word holds its own address on the disk, as in [`pattern`].
    Pattern,
    /// Incompressible bytes of a seed.
    Random(u64),
    /// Words and line ends of a seed: compresses to about a third.
    Text(u64),
    /// One byte, again and again. `Byte(0)` is data in a raw file and zeroes to all who read it.
    Byte(u8),
}

/// A range of data of a [`SparseDisk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The guest address of the first byte.
    pub at: u64,
    /// In bytes.
    pub len: u64,
    pub fill: Fill,
}

/// A disk of mostly zeroes, described by its runs of data. A later run covers an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparseDisk {
    len: u64,
    runs: Vec<Run>,
}

impl SparseDisk {
    /// `len` bytes of zeroes.
    pub fn new(len: u64) -> Self {
        Self { len, runs: Vec::new() }
    }

    /// With a run of data at `at`; what reaches past the end is cut off.
    #[must_use]
    pub fn with(mut self, at: u64, len: u64, fill: Fill) -> Self {
        let at = at.min(self.len);
        self.runs.push(Run { at, len: len.min(self.len - at), fill });
        self
    }

    /// Something like a used disk: about a third data of all kinds, in runs from a sector to `len / 16`.
    pub fn mixed(len: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut disk = Self::new(len);
        let mut at = 0;
        while at < len {
            let sectors = 1 + random.below((len / 16 / SECTOR).max(1));
            let run = sectors * SECTOR;
            disk = match random.below(10) {
                0 => disk.with(at, run, Fill::Pattern),
                1 => disk.with(at, run, Fill::Random(random.next_u64())),
                2 => disk.with(at, run, Fill::Text(random.next_u64())),
                3 => disk.with(at, run.min(4096), Fill::Byte(0xe5)),
                _ => disk,
            };
            at += run;
        }
        disk.with(0, SECTOR, Fill::Text(seed)).with(
            len.saturating_sub(SECTOR),
            SECTOR,
            Fill::Pattern,
        )
    }

    /// Bytes of the disk.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The disk has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The runs, in the order in which they were laid down.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; to_usize(self.len)];
        for run in &self.runs {
            fill(&mut bytes[to_usize(run.at)..to_usize(run.at + run.len)], run);
        }
        bytes
    }

    /// Writes the disk as a sparse raw file.
    pub fn write_to(&self, path: &Path) {
        let file = File::create(path).expect("cannot create a raw disk");
        file.set_len(self.len).expect("cannot size a raw disk");
        for run in &self.runs {
            let mut bytes = vec![0; to_usize(run.len)];
            fill(&mut bytes, run);
            file.write_all_at(&bytes, run.at).expect("cannot write a raw disk");
        }
    }
}

/// Disks of whole sectors, up to `max` bytes, from empty to full. Shrinks towards few, short runs on a small disk.
pub fn sparse_disk(max: u64) -> impl Strategy<Value = SparseDisk> {
    let fill = prop_oneof![
        Just(Fill::Pattern),
        any::<u64>().prop_map(Fill::Random),
        any::<u64>().prop_map(Fill::Text),
        any::<u8>().prop_map(Fill::Byte),
    ];
    // Addresses and lengths are fractions, so that they mean something on a disk of any size.
    let run = (0.0..1.0f64, 0.0..1.0f64, 0..4u32, fill);
    (1..=(max / SECTOR).max(1), prop::collection::vec(run, 0..12)).prop_map(|(sectors, runs)| {
        let mut disk = SparseDisk::new(sectors * SECTOR);
        for (at, len, alignment, fill) in runs {
            // Runs begin and end at clusters, pages, sectors or anywhere.
            let unit = [1, SECTOR, 4096, 65536][alignment as usize];
            let share = |fraction: f64, of: u64| (fraction * of as f64) as u64;
            let at = share(at, disk.len) / unit * unit;
            let len = (1 + share(len * len, disk.len - at)).div_ceil(unit) * unit;
            disk = disk.with(at, len, fill);
        }
        disk
    })
}

const SECTOR: u64 = 512;

fn fill(bytes: &mut [u8], run: &Run) {
    match run.fill {
        Fill::Pattern => fill_pattern(bytes, run.at),
        Fill::Random(seed) => Random::new(seed).fill(bytes),
        Fill::Text(seed) => fill_text(bytes, seed),
        Fill::Byte(byte) => bytes.fill(byte),
    }
}

fn fill_pattern(bytes: &mut [u8], at: u64) {
    let before_word = (at.next_multiple_of(8) - at).min(bytes.len() as u64) as usize;
    let (start, words) = bytes.split_at_mut(before_word);
    let first = (at & !7).to_le_bytes();
    start.copy_from_slice(&first[(at & 7) as usize..][..before_word]);
    for (offset, word) in (at.next_multiple_of(8)..).step_by(8).zip(words.chunks_mut(8)) {
        word.copy_from_slice(&offset.to_le_bytes()[..word.len()]);
    }
}

fn fill_text(bytes: &mut [u8], seed: u64) {
    const WORDS: [&str; 16] = [
        "a ",
        "volume ",
        "of ",
        "bytes ",
        "flows ",
        "once ",
        "through ",
        "memory ",
        "straight ",
        "into ",
        "its ",
        "place ",
        "on ",
        "the ",
        "disk,\n",
        "safely.\n",
    ];
    let mut random = Random::new(seed);
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = WORDS[random.below(16) as usize].as_bytes();
        let part = word.len().min(rest.len());
        rest[..part].copy_from_slice(&word[..part]);
        rest = &mut rest[part..];
    }
}

fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("a disk in memory is smaller than memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_a_pattern_holds_its_own_offset() {
        let bytes = pattern(1 << 12);
        for (index, word) in bytes.chunks(8).enumerate() {
            assert_eq!(word, (index as u64 * 8).to_le_bytes());
        }
        assert_eq!(pattern(13), bytes[..13]);
        let disk = SparseDisk::new(100).with(3, 2, Fill::Pattern).with(11, 80, Fill::Pattern);
        assert_eq!(disk.bytes()[3..5], bytes[3..5]);
        assert_eq!(disk.bytes()[11..91], bytes[11..91]);
    }

    #[test]
    fn disk_file_equals_the_disk_in_memory() {
        let disk = SparseDisk::mixed(1 << 20, 7).with(1000, 5000, Fill::Pattern);
        let file = tempfile::NamedTempFile::new().unwrap();
        disk.write_to(file.path());
        assert_eq!(std::fs::read(file.path()).unwrap(), disk.bytes());
    }

    #[test]
    fn a_run_is_cut_off_at_the_end() {
        let disk = SparseDisk::new(10).with(8, 5, Fill::Byte(1)).with(20, 5, Fill::Byte(2));
        assert_eq!(disk.bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn generated_disks_stay_within_their_bound(disk in sparse_disk(1 << 20)) {
            prop_assert!(disk.len() <= 1 << 20 && disk.len().is_multiple_of(SECTOR));
            prop_assert_eq!(disk.bytes().len() as u64, disk.len());
        }
    }
}
