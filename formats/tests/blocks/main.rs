//! vmdk, vdi, vhd and vhdx against `qemu-img`: what it writes is read as it would read it, and what is broken is refused.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod broken;
mod moved;
mod oracle;
mod patch;
mod refusals;

#[path = "../qcow2/checked.rs"]
mod checked;
#[path = "../qcow2/reader.rs"]
mod reader;

use formats::one_pass::{Limits, OnePassError};

/// Enough for the map of any image here, and nothing to park in but the target.
const TARGET_ONLY: Limits = Limits { index_bytes: 64 << 20, parked_bytes: 0, whole_image_bytes: 0 };

/// Reads the image both ways. What one pass can read, ranges can, and it is the same disk.
fn read_both_ways(image: &[u8], disk_max: u64) -> Option<Vec<u8>> {
    let by_ranges = match reader::header_of(image, Some(image.len() as u64), disk_max) {
        Ok(_) => reader::by_ranges(image).ok(),
        Err(_) => None,
    };
    if reader::header_of(image, None, disk_max).is_err() {
        assert!(by_ranges.is_none(), "only one pass refuses it");
        return None;
    }
    for (chunk_len, parked_bytes) in [(4099, 0), (1 << 20, 1 << 20)] {
        match checked::in_one_pass(image, chunk_len, Limits { parked_bytes, ..TARGET_ONLY }) {
            Ok(outcome) => {
                assert!(Some(&outcome.disk) == by_ranges.as_ref(), "the two ways disagree");
            }
            Err(OnePassError::NeedsRandomAccess { .. } | OnePassError::ParkingFull) => {}
            Err(error) => assert!(by_ranges.is_none(), "only one pass refuses it: {error}"),
        }
    }
    by_ranges
}
