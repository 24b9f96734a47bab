//! Numbers that look random and come out the same in every run.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, a new number per step.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is not 0. The slight bias of a remainder does no harm here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// Fills `bytes`; a longer slice begins with the bytes of a shorter one.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            let next = self.next_u64().to_le_bytes();
            word.copy_from_slice(&next[..word.len()]);
        }
    }
}
