//! How large a disk may become on a volume, and how large it is made.

use crate::byte_count::ByteCount;
use crate::overhead::Overhead;

/// A volume as a worker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// A block device.
    Device {
        /// Its size.
        size: ByteCount,
    },
    /// A folder on a file system.
    Folder {
        /// What the file system has left for ordinary users.
        available: ByteCount,
    },
}

/// How a disk has to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The largest virtual size that fits.
    pub available: ByteCount,
    /// A smaller disk is grown to this.
    pub grow_to: Option<ByteCount>,
}

impl Volume {
    /// What a disk for a PVC that requests `requested` has to be. A device is as large as it is. In a directory the disk gets
    /// what the PVC requests less the overhead; a larger image may use that reserve. The disk that a PVC of this size is
    /// created for is never made smaller where the file system has enough free space for it: the overhead counts once.
    pub fn fit(self, requested: Option<ByteCount>, overhead: Overhead) -> Fit {
        match self {
            Self::Device { size } => Fit { available: size, grow_to: None },
            Self::Folder { available } => {
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
    fn a_disk_fits_its_volume_as_documented() {
        let mib = ByteCount::mebibytes;
        let folder = |available| Volume::Folder { available: mib(available) };
        let device = |size| Volume::Device { size: mib(size) };
        let five_and_a_half: Overhead = "0.055".parse().unwrap();
        for (case, volume, requested, overhead, available, grow_to) in [
            // 100 MiB / 1.055 = 94.8 MiB
            (
                "a claim below its file system",
                folder(200),
                Some(100),
                five_and_a_half,
                100,
                Some(94),
            ),
            // 50 MiB / 1.055 = 47.4 MiB
            ("a file system below its claim", folder(50), Some(100), five_and_a_half, 50, Some(47)),
            // 1055 MiB are requested for a disk of 935 MiB: 544 + (1055 - 656) × 2186 / 2228
            (
                "a file system that took some of its claim",
                folder(940),
                Some(1055),
                five_and_a_half,
                940,
                Some(935),
            ),
            ("no overhead", folder(200), Some(100), Overhead::ZERO, 100, Some(100)),
            ("no claim known: no growing", folder(200), None, five_and_a_half, 200, None),
            ("a device is what it is", device(70), Some(100), five_and_a_half, 70, None),
            ("a larger device too", device(700), Some(100), five_and_a_half, 700, None),
        ] {
            let expected = Fit { available: mib(available), grow_to: grow_to.map(mib) };
            assert_eq!(volume.fit(requested.map(mib), overhead), expected, "{case}");
        }
    }
}
