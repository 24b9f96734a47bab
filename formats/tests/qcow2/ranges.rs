//! Reading by ranges.

use proptest::prelude::*;
use testkit::{MIB, QemuImg, qcow2_options, sparse_disk};

use crate::reader;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_image_reads_by_ranges_as_qemu_img_reads_it(
        disk in sparse_disk(4 * MIB),
        how in qcow2_options(),
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.qcow2(&disk, &how);
        let read = reader::by_ranges(&image.bytes()).unwrap();
        prop_assert!(read == qemu.to_raw(image.path(), "qcow2"), "another disk");
    }
}
