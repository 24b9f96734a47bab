//! Reading in one pass.

use formats::one_pass::{Limits, OnePassError};
use proptest::prelude::*;
use testkit::{
    Change, Fill, Image, MIB, Qcow2Options, QemuImg, Random, SparseDisk, arguments, qcow2_options,
    sparse_disk,
};

use crate::checked::{in_one_pass, in_one_pass_with};

/// Enough for the map of any image here, and nothing to park in but the target.
const TARGET_ONLY: Limits = Limits { index_bytes: 64 << 20, parked_bytes: 0, whole_image_bytes: 0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_image_reads_in_one_pass_as_qemu_img_reads_it(
        disk in sparse_disk(4 * MIB),
        how in qcow2_options(),
        chunk_len in prop::sample::select(vec![97, 4096, 65536, 1 << 20]),
        parked_clusters in prop::sample::select(vec![0, 8, 1 << 20]),
        space_behind in prop::sample::select(vec![0, 64 * MIB]),
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.qcow2(&disk, &how);
        let limits = Limits { parked_bytes: parked_clusters << how.cluster_bits, ..TARGET_ONLY };
        let outcome = match in_one_pass_with(&image.bytes(), chunk_len, limits, space_behind) {
            // Some old tables and the clusters of snapshots can be more than a full disk can hold, and so can what
            // lies behind compressed clusters that share no host cluster, since none can be counted so often.
            Err(OnePassError::ParkingFull)
                if space_behind == 0 && (parked_clusters == 0
                    || parked_clusters == 8
                        && (how.history.contains(&Change::Snapshot)
                            || how.compressed && how.refcount_bits < 16)) =>
            {
                return Ok(());
            }
            outcome => outcome.unwrap(),
        };
        prop_assert!(outcome.disk == qemu.to_raw(image.path(), "qcow2"), "another disk");
    }
}

/// Reads the image with memory for eight clusters, so that the rest is parked in the target.
fn check_parked_in_target(qemu: &QemuImg, image: &Image, how: &Qcow2Options) {
    let limits = Limits { parked_bytes: 8 << how.cluster_bits, ..TARGET_ONLY };
    for chunk_len in [1000, 1 << 20] {
        let outcome = in_one_pass(&image.bytes(), chunk_len, limits).unwrap();
        assert!(outcome.moved.stored > 0, "nothing had to be parked in the target");
        assert!(outcome.disk == qemu.to_raw(image.path(), "qcow2"), "another disk");
    }
}

#[test]
fn the_l1_table_may_lie_behind_all_data() {
    let Some(qemu) = QemuImg::require() else { return };
    let grown = vec![Change::Grow(300)];
    let plain = Qcow2Options { cluster_bits: 9, history: grown, ..Qcow2Options::default() };
    let compressed = Qcow2Options { compressed: true, cluster_bits: 10, ..plain.clone() };
    let zstd = Qcow2Options { zstd: true, out_of_order: true, ..compressed.clone() };
    for how in [plain, compressed, zstd] {
        // One table more than the first L1 table's cluster can hold, once it has grown.
        let disk = SparseDisk::mixed(1 << (3 * how.cluster_bits - 7), 5);
        let image = qemu.qcow2(&disk, &how);
        check_parked_in_target(&qemu, &image, &how);
    }
}

#[test]
fn a_full_disk_may_have_all_its_data_before_its_l2_tables() {
    let Some(qemu) = QemuImg::require() else { return };
    for preallocation in ["falloc", "full"] {
        let preallocation = Some(preallocation);
        let how = Qcow2Options { cluster_bits: 12, preallocation, ..Qcow2Options::default() };
        let disk = SparseDisk::new(6 * MIB).with(0, 6 * MIB, Fill::Pattern);
        let image = qemu.qcow2(&disk, &how);
        check_parked_in_target(&qemu, &image, &how);
        let limits = Limits { parked_bytes: 8 << how.cluster_bits, ..TARGET_ONLY };
        let moved = in_one_pass(&image.bytes(), 1 << 20, limits).unwrap().moved;
        assert!(moved.loaded < MIB, "data goes on where it went on, and is parked in its place");
    }
}

#[test]
fn subclusters_behind_the_end_of_the_disk_are_not_data() {
    let Some(qemu) = QemuImg::require() else { return };
    // Writing to a compressed cluster makes it a plain one, as a whole, of which the disk has only half.
    let history = vec![Change::Zero { at: 928, len: 112 }];
    let how =
        Qcow2Options { compressed: true, extended_l2: true, history, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(33280).with(0, 1, Fill::Random(0)), &how);
    let outcome = in_one_pass(&image.bytes(), 97, TARGET_ONLY).unwrap();
    assert!(outcome.disk == qemu.to_raw(image.path(), "qcow2"), "another disk");
}

#[test]
fn clusters_that_only_a_snapshot_uses_are_parked_in_vain_and_leave_no_trace() {
    let Some(qemu) = QemuImg::require() else { return };
    let how = Qcow2Options { cluster_bits: 12, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(16 * MIB), &how);
    qemu.qemu_io(image.path(), &["write -P 1 1M 2M", "write -P 2 9M 3M"]);
    qemu.run(arguments!["snapshot", "-c", "one", image.path()]);
    qemu.qemu_io(image.path(), &["write -P 3 2M 8M", "discard 1M 1M", "write -z 11M 100k"]);
    check_parked_in_target(&qemu, &image, &how);
}

#[test]
fn what_exceeds_a_full_disk_is_parked_behind_it_or_in_memory_if_the_image_is_small() {
    let Some(qemu) = QemuImg::require() else { return };
    // A disk of three clusters, all of them in use, and in two snapshots with other content.
    let how = Qcow2Options { cluster_bits: 21, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(6 * MIB), &how);
    for (byte, snapshot) in [(1, "one"), (2, "two")] {
        qemu.qemu_io(image.path(), &[&format!("write -P {byte} 0 6M")]);
        qemu.run(arguments!["snapshot", "-c", snapshot, image.path()]);
    }
    qemu.qemu_io(image.path(), &["write -P 3 0 6M"]);
    let (image, expected) = (image.bytes(), qemu.to_raw(image.path(), "qcow2"));
    for chunk_len in [5000, 1 << 20] {
        let full = in_one_pass(&image, chunk_len, TARGET_ONLY);
        assert!(matches!(full, Err(OnePassError::ParkingFull)), "{:?}", full.map(|f| f.moved));
        let behind = in_one_pass_with(&image, chunk_len, TARGET_ONLY, 16 * MIB).unwrap();
        assert!(behind.disk == expected && behind.moved.stored > 0);
        let small = Limits { whole_image_bytes: image.len(), ..TARGET_ONLY };
        let in_memory = in_one_pass(&image, chunk_len, small).unwrap();
        assert!(in_memory.disk == expected && in_memory.moved.stored == 0);
        let large = Limits { whole_image_bytes: image.len() / 2, ..TARGET_ONLY };
        let full = in_one_pass(&image, chunk_len, large);
        assert!(matches!(full, Err(OnePassError::ParkingFull)), "{:?}", full.map(|f| f.moved));
    }
}

#[test]
fn compressed_clusters_in_any_order_share_sectors_with_their_neighbours() {
    let Some(qemu) = QemuImg::require() else { return };
    let how = Qcow2Options { cluster_bits: 10, zstd: true, ..Qcow2Options::default() };
    let text = Image::from_bytes(&SparseDisk::new(1024).with(0, 1024, Fill::Text(1)).bytes());
    for (seed, grown) in [(1, "4M"), (2, "4M"), (3, "64M"), (4, "64M")] {
        let image = qemu.qcow2(&SparseDisk::new(4 * MIB), &how);
        let mut random = Random::new(seed);
        let writes: Vec<String> = (0..1000)
            .map(|number| {
                let at = (number * 1597 + seed) % 4096 * 1024; // each cluster once: qemu-io wants it so
                match random.below(3) {
                    0 => format!("write -c -s {} {at} 1k", text.path().display()),
                    byte => format!("write -c -P {byte} {at} 1k"), // a few bytes each
                }
            })
            .collect();
        qemu.qemu_io(image.path(), &writes.iter().map(String::as_str).collect::<Vec<_>>());
        qemu.run(arguments!["resize", "-f", "qcow2", image.path(), grown]);
        let limits = Limits { parked_bytes: 8 << how.cluster_bits, ..TARGET_ONLY };
        let outcome = in_one_pass(&image.bytes(), 65536, limits).unwrap();
        assert!(outcome.disk == qemu.to_raw(image.path(), "qcow2"), "another disk");
    }
}
