//! How large a small volume has to be so that its file system leaves a disk of a given size.
//!
//! The fixed parts of a file system (journal, log, reserved blocks) weigh more in small volumes: 5.5 % are too little below
//! 2.8 GiB. The table bounds what `mkfs.ext4 -F -m0` and `mkfs.xfs`, called as Kubernetes calls them, leave to users
//! (`f_bavail`). Measured with e2fsprogs 1.47.0, xfsprogs 6.1.0 (also with `rmapbt`, which later versions turn on) and
//! Linux 6.18, at 1 MiB to 2 TiB. `tests/it/file_systems.rs` repeats the measurement.

use crate::byte_count::ByteCount;

/// A disk, and the smallest volume that holds it, in MiB. In between, a straight line holds.
///
/// A volume that is larger than it has to be holds the disk too, although the journal of ext4 grows in steps and XFS needs
/// 300 MiB and more: hence the step at 216 MiB.
const TABLE: [(u64, u64); 7] =
    [(0, 8), (48, 60), (216, 248), (217, 304), (544, 656), (2730, 2884), (3000, 3160)];

/// The largest disk of the table. Larger ones need less than the default overhead.
const DISK_MAX: ByteCount = ByteCount::mebibytes(3000);

/// The smallest volume for `disk`. `None` where the table has none, as the disk is large or empty.
pub fn volume_for(disk: ByteCount) -> Option<ByteCount> {
    if disk.get() == 0 || disk > DISK_MAX {
        return None;
    }
    let next = TABLE.iter().position(|(largest, _)| disk <= ByteCount::mebibytes(*largest))?.max(1);
    let ((disk_0, volume_0), (disk_1, volume_1)) = (TABLE[next - 1], TABLE[next]);
    let beyond = u128::from(disk.get() - ByteCount::mebibytes(disk_0).get());
    let rise = beyond * u128::from(volume_1 - volume_0);
    let rise = u64::try_from(rise.div_ceil(u128::from(disk_1 - disk_0))).ok()?;
    Some(ByteCount::new(ByteCount::mebibytes(volume_0).get() + rise))
}

/// The largest disk, in whole MiB, that [`volume_for()`] gives no more than `volume`. `None` where the table does not
/// restrict it.
pub fn disk_in(volume: ByteCount) -> Option<ByteCount> {
    let fits = |disk: u64| volume_for(ByteCount::mebibytes(disk)).is_none_or(|size| size <= volume);
    let largest = DISK_MAX.get() / ByteCount::MIB.get();
    if fits(largest) {
        return None;
    }
    let (mut fitting, mut too_large) = (0, largest);
    while too_large - fitting > 1 {
        let middle = fitting.midpoint(too_large);
        if fits(middle) { fitting = middle } else { too_large = middle }
    }
    Some(ByteCount::mebibytes(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(count: u64) -> ByteCount {
        ByteCount::mebibytes(count)
    }

    #[test]
    fn volumes_follow_the_table_and_the_lines_between_its_rows() {
        for (disk, volume) in [
            (mib(0), None),
            (mib(24), Some(mib(34))),
            (mib(48), Some(mib(60))),
            (mib(216), Some(mib(248))),
            (mib(217), Some(mib(304))),
            (mib(544), Some(mib(656))),
            (mib(1637), Some(mib(1770))),
            (mib(3000), Some(mib(3160))),
            (mib(3001), None),
            (ByteCount::new(u64::MAX), None),
        ] {
            assert_eq!(volume_for(disk), volume, "{disk}");
        }
        // A byte more than a row is a byte more, rounded up.
        let next = volume_for(ByteCount::new(mib(544).get() + 1));
        assert_eq!(next, Some(ByteCount::new(mib(656).get() + 2)));
    }

    #[test]
    fn a_larger_disk_never_needs_a_smaller_volume_and_both_directions_agree() {
        let mut last = mib(0);
        for disk in 1..=3000 {
            let volume = volume_for(mib(disk)).unwrap();
            assert!(volume >= last && volume > mib(disk), "{disk}");
            last = volume;
            assert_eq!(disk_in(volume), Some(mib(disk)).filter(|_| disk < 3000), "{disk}");
            let less = ByteCount::new(volume.get() - 1);
            assert_eq!(disk_in(less), Some(mib(disk - 1)), "{disk}");
        }
        assert_eq!(disk_in(mib(0)), Some(mib(0)));
        assert_eq!(disk_in(mib(3160)), None);
        assert_eq!(disk_in(ByteCount::new(u64::MAX)), None);
    }
}
