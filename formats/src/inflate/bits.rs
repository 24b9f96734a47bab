//! Bits of the input, the lowest of each byte first.

use super::Now;
use super::output::OutputByte;

/// Bits that were taken from the input but not used yet.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits {
    /// The next bit is the lowest; above `count` all bits are zero.
    pub buffer: u64,
    /// Up to 63.
    pub count: u32,
}

impl Bits {
    /// The bits from bit `at` of the input to the end of its byte, and the number of bytes up to there.
    pub(super) fn beginning_at(at: u64, input: &[u8]) -> (Self, usize) {
        let (byte, used) = ((at / 8) as usize, (at % 8) as u32);
        (Self { buffer: u64::from(input[byte]) >> used, count: 8 - used }, byte + 1)
    }

    /// Takes whole bytes of the input while there are any and there is space for them.
    pub(super) fn refill<B>(&mut self, now: &mut Now<'_, B>) {
        while self.count <= 55
            && let Some(byte) = now.input.get(now.at)
        {
            self.buffer |= u64::from(*byte) << self.count;
            self.count += 8;
            now.at += 1;
        }
    }

    /// The next `n` bits, up to 32, if the input has them.
    pub(super) fn take<B>(&mut self, n: u32, now: &mut Now<'_, B>) -> Option<u32> {
        self.refill(now);
        (self.count >= n).then(|| {
            let bits = self.buffer & ((1 << n) - 1);
            self.consume(n);
            bits as u32
        })
    }

    pub(super) fn consume(&mut self, n: u32) {
        self.buffer >>= n;
        self.count -= n;
    }

    /// Passes over the bits up to the next whole byte.
    pub(super) fn align(&mut self) {
        self.consume(self.count % 8);
    }

    /// Copies up to `n` bytes to the output, as far as there are input and space. Only at an aligned position.
    pub(super) fn copy_bytes<B: OutputByte>(&mut self, n: usize, now: &mut Now<'_, B>) -> usize {
        let n = n.min(now.out.len() - now.filled);
        let mut copied = 0;
        while copied < n && self.count > 0 {
            now.out[now.filled] = B::from(self.buffer as u8);
            self.consume(8);
            now.filled += 1;
            copied += 1;
        }
        let rest = (n - copied).min(now.input.len() - now.at);
        B::copy_bytes(&mut now.out[now.filled..][..rest], &now.input[now.at..][..rest]);
        now.filled += rest;
        now.at += rest;
        copied + rest
    }

    /// The whole bytes that are left.
    pub(super) fn whole_bytes(mut self) -> Vec<u8> {
        self.align();
        self.buffer.to_le_bytes()[..self.count as usize / 8].to_vec()
    }
}
