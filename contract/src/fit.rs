//! How large a disk may be on a volume, and to which size it grows.

use crate::byte_count::ByteCount;
use crate::overhead::Overhead;

/// The target volume as a worker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A block device.
    Device {
        /// Size of the device.
        size: ByteCount,
    },
    /// A directory of a mounted file system.
    Directory {
        /// Free space for unprivileged users.
        available: ByteCount,
    },
}

/// The permitted sizes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Maximum virtual size.
    pub available: ByteCount,
    /// A smaller disk grows to this size.
    pub grow_to: Option<ByteCount>,
}

impl Volume {
    /// The sizes of a disk for a PVC that requests `requested`. On a device, the disk has the size of the device. In a
    /// directory, the disk gets what the PVC requests less the overhead; a larger image may use that reserve. The disk
    /// that a PVC of this size is created for is never made smaller where the file system has enough free space for it:
    /// the overhead counts once.
    pub fn fit(self, requested: Option<ByteCount>, overhead: Overhead) -> Fit {
        match self {
            Self::Device { size } => Fit { available: size, grow_to: None },
            Self::Directory { available } => {
                let available = requested.map_or(available, |wanted| wanted.min(available));
                let grow_to = requested.map(|wanted| {
                    let usable = overhead.usable(available).min(wanted);
                    let disk = overhead.disk_of_pvc(wanted);
                    if disk <= available { usable.max(disk) } else { usable }
                });
                Fit { available, grow_to }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_size_decision_table() {
        let mib = ByteCount::mebibytes;
        let directory = |available| Volume::Directory { available: mib(available) };
        let device = |size| Volume::Device { size: mib(size) };
        let five_and_a_half: Overhead = "0.055".parse().unwrap();
        for (case, volume, requested, overhead, available, grow_to) in [
            // 100 MiB / 1.055 = 94.8 MiB
            (
                "a claim below its file system",
                directory(200),
                Some(100),
                five_and_a_half,
                100,
                Some(94),
            ),
            // 50 MiB / 1.055 = 47.4 MiB
            (
                "a file system below its claim",
                directory(50),
                Some(100),
                five_and_a_half,
                50,
                Some(47),
            ),
            // 1055 MiB are requested for a disk of 935 MiB: 544 + (1055 - 656) × 2186 / 2228
            (
                "a file system that took some of its claim",
                directory(940),
                Some(1055),
                five_and_a_half,
                940,
                Some(935),
            ),
            ("no overhead", directory(200), Some(100), Overhead::ZERO, 100, Some(100)),
            ("no claim known: no growing", directory(200), None, five_and_a_half, 200, None),
            ("a device is what it is", device(70), Some(100), five_and_a_half, 70, None),
            ("a larger device too", device(700), Some(100), five_and_a_half, 700, None),
        ] {
            let expected = Fit { available: mib(available), grow_to: grow_to.map(mib) };
            assert_eq!(volume.fit(requested.map(mib), overhead), expected, "{case}");
        }
    }
}
