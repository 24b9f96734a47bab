//! How much larger than its disk a volume with a file system must be.

use std::fmt;
use std::str::FromStr;

use crate::byte_count::ByteCount;
use crate::small_volume;

/// The share of a filesystem volume that its file system may use for itself, as a fraction of the disk: 0 to 1 in
/// thousandths. Never applies to block volumes.
///
/// All arithmetic is on integers. Upstream CDI calculates in floating point, whose results are the same or, where
/// the exact product is a whole number, at times one byte larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overhead {
    thousandths: u16,
}

/// The default of upstream CDI: 5.5 %.
impl Default for Overhead {
    fn default() -> Self {
        Self { thousandths: 55 }
    }
}

impl Overhead {
    /// No overhead: of a block device, or of a class with the value `"0"`.
    pub const ZERO: Self = Self { thousandths: 0 };

    /// The disk that fits into a volume of `available` bytes: `available / (1 + overhead)`, rounded up to a byte and then
    /// down to 1 MiB.
    pub fn usable(self, available: ByteCount) -> ByteCount {
        let disk = (u128::from(available.get()) * 1000).div_ceil(self.factor());
        // The factor is at least 1000, so the quotient is at most `available`.
        let disk = u64::try_from(disk).unwrap_or(available.get());
        ByteCount::new(disk).round_down(ByteCount::MIB)
    }

    /// The volume that a disk of `disk` bytes needs: the size rounded up to 1 MiB, times `1 + overhead`, rounded up to a
    /// byte. `None` where that passes 2^64.
    pub fn required(self, disk: ByteCount) -> Option<ByteCount> {
        let disk = disk.round_up(ByteCount::MIB)?;
        let volume = (u128::from(disk.get()) * self.factor()).div_ceil(1000);
        u64::try_from(volume).ok().map(ByteCount::new)
    }

    /// The PVC to create for a disk of `disk` bytes: [`Self::required()`], or what ext4 and XFS really take from a
    /// volume of that size where that is more. An overhead below the default is for storage with another file system,
    /// or with none of its own (NFS, for example), and counts alone. `None` where the size passes 2^64.
    pub fn pvc_for_disk(self, disk: ByteCount) -> Option<ByteCount> {
        let floor = self.required(disk)?;
        if self < Self::default() {
            return Some(floor);
        }
        let measured = small_volume::volume_for(disk.round_up(ByteCount::MIB)?);
        Some(measured.map_or(floor, |size| size.max(floor)))
    }

    /// The disk that a PVC of `requested` bytes is created for: the largest with [`Self::pvc_for_disk()`] of no more.
    pub fn disk_of_pvc(self, requested: ByteCount) -> ByteCount {
        let usable = self.usable(requested);
        if self < Self::default() {
            return usable;
        }
        small_volume::disk_in(requested).map_or(usable, |disk| disk.min(usable))
    }

    /// `1 + overhead`, times 1000.
    fn factor(self) -> u128 {
        1000 + u128::from(self.thousandths)
    }
}

/// The text does not have the format of CDIConfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a filesystem overhead is a fraction from 0 to 1 with at most three decimals, such as 0.055"
)]
pub struct BadOverhead;

/// As the CRD's pattern has it: `^(0(?:\.\d{1,3})?|1)$`.
impl FromStr for Overhead {
    type Err = BadOverhead;

    fn from_str(text: &str) -> Result<Self, BadOverhead> {
        let thousandths = match text {
            "0" => 0,
            "1" => 1000,
            _ => {
                let decimals = text.strip_prefix("0.").ok_or(BadOverhead)?;
                if !(1..=3).contains(&decimals.len())
                    || !decimals.bytes().all(|digit| digit.is_ascii_digit())
                {
                    return Err(BadOverhead);
                }
                format!("{decimals:0<3}").parse().map_err(|_| BadOverhead)?
            }
        };
        Ok(Self { thousandths })
    }
}

/// The shortest text that reads as the same number: `0.055`, `0.1`, `0`.
impl fmt::Display for Overhead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.thousandths / 1000, self.thousandths % 1000);
        formatter.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn overhead(text: &str) -> Overhead {
        text.parse().unwrap()
    }

    #[test]
    fn pvc_size_of_a_disk_is_the_documented_one() {
        for (share, disk, volume) in [
            ("0.055", 10 * GIB, 11_327_976_244), // 10737418240 × 1.055 = 11327976243.2
            ("0.055", 0, 0),
            ("0.055", 1, 1_106_248), // one MiB × 1.055 = 1106247.68
            ("0.055", MIB, 1_106_248),
            ("0.055", MIB + 1, 2_212_496),
            ("0", MIB + 1, 2 * MIB),
            ("0.06", 10 * GIB, 11_381_663_335),
            ("1", GIB, 2 * GIB),
        ] {
            let required = overhead(share).required(ByteCount::new(disk));
            assert_eq!(required, Some(ByteCount::new(volume)), "{share} of {disk}");
        }
        assert_eq!(Overhead::default().required(ByteCount::new(u64::MAX)), None);
        assert_eq!(overhead("1").required(ByteCount::new(1 << 63)), None);
    }

    #[test]
    fn disk_size_of_a_pvc_is_the_documented_one() {
        for (share, volume, disk) in [
            ("0.055", GIB, 970 * MIB), // 1073741824 / 1.055 = 970.6 MiB
            ("0.055", 11_327_976_244, 10 * GIB),
            ("0.055", 11_327_976_243, 10 * GIB), // 10737418239.8: up to a byte, then down
            ("0.055", 11_327_976_242, 10 * GIB - MIB),
            ("0.055", 0, 0),
            ("0.055", MIB, 0),
            ("0", MIB, MIB),
            ("0", MIB - 1, 0),
            ("1", 2 * MIB - 1, MIB),
            ("0", u64::MAX, u64::MAX - (MIB - 1)),
        ] {
            let usable = overhead(share).usable(ByteCount::new(volume));
            assert_eq!(usable, ByteCount::new(disk), "{share} of {volume}");
        }
    }

    #[test]
    fn pvc_of_a_small_disk_is_sized_by_what_file_systems_take() {
        for (share, disk, volume) in [
            ("0.055", GIB / 16, 81_689_064), // 60 + 16 × 188 / 168 MiB, rounded up
            ("0.055", 2 * GIB, 2_295_224_457), // 656 + 1504 × 2228 / 2186 MiB, rounded up
            ("0.055", 2900 * MIB, 3_208_118_272), // 2900 MiB × 1.055: the share is more
            ("0.055", 10 * GIB, 11_327_976_244),
            ("0.054", 2 * GIB, 2_263_447_765), // 2 GiB × 1.054 = 2263447764.99: another file system
            ("0.5", 2 * GIB, 3 * GIB),
            ("0", 2 * GIB, 2 * GIB), // no file system of its own
            ("0.055", 0, 0),
        ] {
            let (overhead, disk) = (overhead(share), ByteCount::new(disk));
            let size = overhead.pvc_for_disk(disk).unwrap();
            assert_eq!(size, ByteCount::new(volume), "{share} of {disk}");
            assert_eq!(overhead.disk_of_pvc(size), disk, "{share} of {disk}");
        }
        assert_eq!(Overhead::default().pvc_for_disk(ByteCount::new(u64::MAX)), None);
    }

    #[test]
    fn only_the_pattern_of_the_crd_is_read() {
        for (text, shown) in [
            ("0", "0"),
            ("1", "1"),
            ("0.055", "0.055"),
            ("0.1", "0.1"),
            ("0.50", "0.5"),
            ("0.000", "0"),
        ] {
            assert_eq!(overhead(text).to_string(), shown);
        }
        assert_eq!(Overhead::default(), overhead("0.055"));
        for text in [
            "", "0.", ".5", "0.0555", "1.0", "2", "-0.1", "+0.1", "0.+1", "0,1", "00", " 0",
            "0.1%", "0.١",
        ] {
            assert_eq!(text.parse::<Overhead>(), Err(BadOverhead), "{text}");
        }
    }

    prop_compose! {
        fn any_overhead()(thousandths in 0_u16..=1000) -> Overhead {
            Overhead { thousandths }
        }
    }

    proptest! {
        #[test]
        fn requested_disk_fits_its_pvc(
            share in any_overhead(),
            disk in 0_u64..1 << 62,
        ) {
            let claim = share.required(ByteCount::new(disk)).unwrap();
            let usable = share.usable(claim);
            prop_assert!(usable.get() >= disk);
            prop_assert_eq!(Some(usable), ByteCount::new(disk).round_up(ByteCount::MIB));
        }

        #[test]
        fn pvc_for_a_disk_is_never_smaller_than_its_share_and_leads_back_to_the_disk(
            share in any_overhead(),
            disk in prop_oneof![0_u64..4 * GIB, 0_u64..1 << 62],
        ) {
            let disk = ByteCount::new(disk);
            let size = share.pvc_for_disk(disk).unwrap();
            prop_assert!(size >= share.required(disk).unwrap());
            prop_assert_eq!(Some(share.disk_of_pvc(size)), disk.round_up(ByteCount::MIB));
        }

        #[test]
        fn usable_disk_is_never_larger_than_its_volume(share in any_overhead(), volume: u64) {
            let usable = share.usable(ByteCount::new(volume));
            prop_assert!(usable.get() <= volume);
            prop_assert_eq!(usable.get() % MIB, 0);
        }

        /// Below 2^40 bytes a double holds every product to a small fraction of a byte, so the formulas of upstream CDI
        /// give the same up to the one byte that rounding an inexact whole number costs.
        #[test]
        fn floating_point_agrees_to_the_byte(share in any_overhead(), size in 0_u64..1 << 40) {
            let factor = 1.0 + f64::from(share.thousandths) / 1000.0;
            let required = share.required(ByteCount::new(size)).unwrap().get();
            let rounded = size.next_multiple_of(MIB) as f64;
            let product = rounded * factor;
            if (product - product.round()).abs() > 1e-3 {
                prop_assert_eq!(required, product.ceil() as u64);
            } else {
                prop_assert!(required.abs_diff(product.round() as u64) <= 1);
            }
            let quotient = size as f64 / factor;
            let usable = share.usable(ByteCount::new(size)).get();
            if (quotient - quotient.round()).abs() > 1e-3 {
                prop_assert_eq!(usable, (quotient.ceil() as u64) / MIB * MIB);
            }
        }

        #[test]
        fn shown_value_parses_to_the_same(share in any_overhead()) {
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }
    }
}
