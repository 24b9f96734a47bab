//! What `qemu-img` writes is read as `qemu-img` reads it.

use formats::one_pass::{Limits, OnePassError};
use proptest::prelude::*;
use testkit::{BlockOptions, MIB, QemuImg, SparseDisk, block_options, sparse_disk};

use crate::checked::in_one_pass;
use crate::{TARGET_ONLY, reader};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn both_methods_read_every_image_as_qemu_img_does(
        disk in sparse_disk(6 * MIB),
        how in block_options(),
        chunk_len in prop::sample::select(vec![977, 4096, 65536, 1 << 20]),
        parked_bytes in prop::sample::select(vec![0, 1 << 20]),
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.blocks(&disk, &how);
        let expected = qemu.to_raw(image.path(), how.format);
        let bytes = image.bytes();
        let by_ranges = reader::by_ranges(&bytes).unwrap();
        prop_assert_eq!(by_ranges.len(), expected.len());
        prop_assert!(by_ranges == expected, "another disk by ranges");
        match in_one_pass(&bytes, chunk_len, Limits { parked_bytes, ..TARGET_ONLY }) {
            Ok(outcome) => prop_assert!(outcome.disk == expected, "another disk in one pass"),
            // The copies of a vmdk's tables come first, and a full disk has no free clusters for them.
            Err(OnePassError::ParkingFull) if parked_bytes == 0 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_disk_with_a_hole_of_gigabytes_reads_as_its_few_blocks() {
    let Some(qemu) = QemuImg::require() else { return };
    for how in BlockOptions::each() {
        if how.options.contains("fixed") || how.options.contains("static=on") {
            continue;
        }
        // More than one table of each format.
        let disk = SparseDisk::mixed(MIB, 3);
        let image = qemu.blocks(&disk, &how);
        let large = qemu.blocks(&SparseDisk::new(9 << 30), &how);
        let (small, large) = (image.bytes(), large.bytes());
        let size = |bytes: &[u8]| {
            let layout = reader::header_of(bytes, Some(bytes.len() as u64), 16 << 30).unwrap();
            let root = layout.root_range();
            let root = &bytes[root.start as usize..root.end as usize];
            let tables = formats::index::Tables::parse(&*layout, root).unwrap();
            assert!(bytes.len() as u64 > layout.virtual_size() || tables.len() > 1);
            layout.virtual_size()
        };
        assert!(size(&large) >= 9 << 30, "{how:?}");
        assert!(reader::by_ranges(&small).is_ok(), "{how:?}");
    }
}
