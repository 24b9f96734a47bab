//! Disks to make images of.

/// A disk of `len` bytes in which zeroes, text-like and random stretches take turns, different for each `seed`.
pub fn mixed(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(2).wrapping_add(1));
    let mut disk = Vec::with_capacity(len);
    while disk.len() < len {
        let stretch = (512 << (random.next() % 9)).min(len - disk.len());
        match random.next() % 4 {
            0 => disk.resize(disk.len() + stretch, 0),
            1 => disk.resize(disk.len() + stretch, random.next() as u8),
            2 => disk.extend((0..stretch).map(|at| b"the quick brown fox "[at % 20])),
            _ => disk.extend((0..stretch).map(|_| random.next() as u8)),
        }
    }
    disk
}

/// xorshift64*: quick, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
}
