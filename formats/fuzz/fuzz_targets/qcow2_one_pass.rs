//! Any bytes, read as qcow2 in one pass: refused, or the disk that their tables show, by the rules of the contract.

#![no_main]

use formats::qcow2::{Header, Limits};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)] // the tests look at more
#[path = "../../tests/qcow2/checked.rs"]
mod checked;
#[allow(dead_code)]
#[path = "../../tests/qcow2/reader.rs"]
mod reader;

/// Larger disks only take longer.
const DISK_MAX: u64 = 16 << 20;

fuzz_target!(|image: &[u8]| {
    let Ok(header) = Header::parse(&image[..image.len().min(Header::HEAD_LEN)], None) else {
        return;
    };
    if header.virtual_size() > DISK_MAX {
        return;
    }
    // How it is read depends on its last bits, so that every image is a seed.
    let how = image.last().map_or(0, |byte| byte ^ image[image.len() / 2]);
    let chunk_len = [61, 512, 4096, 1 << 20][usize::from(how % 4)];
    let parked_bytes = [0, 2000, 16384, 1 << 20][usize::from(how / 4 % 4)];
    let limits = Limits { index_bytes: 64 << 10, parked_bytes };
    if let Ok(outcome) = checked::in_one_pass(image, chunk_len, limits) {
        let by_ranges = reader::by_ranges(image).expect("what one pass can read, ranges can");
        assert!(outcome.disk == by_ranges, "two disks");
    }
});
