//! A number of bytes, and rounding it.

use std::fmt;

/// A count of bytes: of a volume, an image, a write. (`Bytes` names the HTTP stack's buffers.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(u64);

impl ByteCount {
    /// 2^20 bytes: sizes of disks are multiples of it.
    pub const MIB: Self = Self::mebibytes(1);

    /// A count of `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// `count` times 2^20 bytes.
    pub const fn mebibytes(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next multiple of `unit`, or itself. `None` where that passes 2^64, or for a `unit` of 0.
    pub const fn round_up(self, unit: Self) -> Option<Self> {
        match self.0.checked_next_multiple_of(unit.0) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// The last multiple of `unit` that is not larger; itself for a `unit` of 0.
    pub const fn round_down(self, unit: Self) -> Self {
        match self.0.checked_rem(unit.0) {
            Some(rest) => Self(self.0 - rest),
            None => self,
        }
    }

    /// For messages: `1.5 GiB`, `512 B`. At most one decimal, rounded to nearest, binary units.
    pub const fn human(self) -> Human {
        Human(self.0)
    }
}

/// The plain number, without a unit.
impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// Displays a count of bytes; created by [`ByteCount::human`]. Honours width and alignment.
#[derive(Clone, Copy, Debug)]
pub struct Human(u64);

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

impl fmt::Display for Human {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut power = 0;
        let tenths = loop {
            let unit = 1_u128 << (10 * power);
            let tenths = (u128::from(self.0) * 10 + unit / 2) / unit;
            // 1023.96 MiB would round to `1024 MiB`, so the next unit takes over.
            if tenths < 10_240 || power + 1 == UNITS.len() {
                break tenths;
            }
            power += 1;
        };
        let text = match (tenths / 10, tenths % 10) {
            (whole, 0) => format!("{whole} {}", UNITS[power]),
            (whole, tenth) => format!("{whole}.{tenth} {}", UNITS[power]),
        };
        formatter.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_form_has_the_largest_fitting_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (1 << 20, "1 MiB"),
            (1024 * 1023 + 972, "1023.9 KiB"),
            (1024 * 1023 + 973, "1 MiB"),
            (3 << 29, "1.5 GiB"),
            (10 << 30, "10 GiB"),
            (1 << 40, "1 TiB"),
            (1 << 50, "1 PiB"),
            (1 << 60, "1 EiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(ByteCount::new(bytes).human().to_string(), expected, "{bytes}");
        }
        assert_eq!(format!("{:>8}|", ByteCount::new(5).human()), "     5 B|");
    }

    #[test]
    fn rounding_does_not_overflow() {
        let mib = ByteCount::MIB;
        let at = ByteCount::new;
        assert_eq!(at(0).round_up(mib), Some(at(0)));
        assert_eq!(at(1).round_up(mib), Some(mib));
        assert_eq!(mib.round_up(mib), Some(mib));
        assert_eq!(at((1 << 20) + 1).round_up(mib), Some(ByteCount::mebibytes(2)));
        assert_eq!(at(u64::MAX).round_up(mib), None);
        assert_eq!(at(1).round_up(at(0)), None);
        assert_eq!(at((1 << 20) - 1).round_down(mib), at(0));
        assert_eq!(at((2 << 20) - 1).round_down(mib), mib);
        assert_eq!(at(u64::MAX).round_down(mib), at(u64::MAX - 0xf_ffff));
        assert_eq!(at(7).round_down(at(0)), at(7));
    }
}
