//! Whether zeroes have to be written to a device at all. A new volume is zero, and storage that knows what was never
//! written reads that fast. Other storage takes no longer to read zeroes than to write them.

use std::sync::atomic::{AtomicI64, Ordering};

/// Decides whether the next piece of a device is worth reading before it is zeroed. A device with old data is soon
/// zeroed without.
pub struct OldData {
    /// Pieces that may still be read for nothing.
    credit: AtomicI64,
}

impl OldData {
    const CREDIT: i64 = 16;
    const CREDIT_MAX: i64 = 64;

    pub fn new() -> Self {
        Self { credit: AtomicI64::new(Self::CREDIT) }
    }

    pub fn is_worth_reading(&self) -> bool {
        self.credit.load(Ordering::Relaxed) > 0
    }

    /// A piece was read. `was_zero`: it does not have to be zeroed.
    pub fn count(&self, was_zero: bool) {
        // Threads that count at the same time may lose one: it is a heuristic.
        let credit = self.credit.load(Ordering::Relaxed) + if was_zero { 1 } else { -1 };
        self.credit.store(credit.min(Self::CREDIT_MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_with_old_data_is_not_read_for_long() {
        let old_data = OldData::new();
        for _ in 0..1000 {
            old_data.count(true);
        }
        let mut read = 0;
        while old_data.is_worth_reading() {
            old_data.count(read % 4 == 0);
            read += 1;
        }
        assert_eq!(read, 127, "of which a quarter was zero");
        assert!(!old_data.is_worth_reading());
    }
}
