//! The crate `qcow2-rs`, which shares nothing with this reader or with QEMU, on what it can read: clusters of 4 KiB and
//! more, no zstd, no extended L2 entries, nothing marked dirty.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use qcow2_rs::dev::Qcow2DevParams;
use qcow2_rs::helpers::Qcow2IoBuf;
use qcow2_rs::utils::qcow2_setup_dev_sync;
use testkit::{Change, MIB, QemuImg, qcow2_options, sparse_disk};

use crate::reader;

/// Nothing in there ever waits: its I/O blocks.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

fn disk_by_qcow2_rs(image: &Path, len: usize) -> Vec<u8> {
    let params = Qcow2DevParams::new(9, None, None, true, false);
    let device = qcow2_setup_dev_sync(image, &params).unwrap();
    wait(device.qcow2_prep_io()).unwrap();
    let mut buffer = Qcow2IoBuf::<u8>::new(len);
    assert_eq!(wait(device.read_at(&mut buffer, 0)).unwrap(), len);
    buffer.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn another_reader_sees_the_same_disk(disk in sparse_disk(2 * MIB), mut how in qcow2_options()) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        (how.zstd, how.extended_l2) = (false, false);
        how.cluster_bits = how.cluster_bits.max(12);
        how.history.retain(|change| !matches!(change, Change::Crash));
        let image = qemu.qcow2(&disk, &how);
        let read = reader::by_ranges(&image.bytes()).unwrap();
        prop_assert!(read == disk_by_qcow2_rs(image.path(), read.len()), "another disk");
    }
}
