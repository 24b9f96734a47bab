//! Both ways of reading an image: what one pass can read, ranges can, and it is the same disk.

use formats::one_pass::Limits;

use crate::{checked, reader};

/// Larger disks only take longer.
const DISK_MAX: u64 = 16 << 20;

/// Reads an image of any format with an index, both ways.
pub fn read(image: &[u8]) {
    if reader::header_of(image, None, DISK_MAX).is_err() {
        return;
    }
    // How it is read depends on its last bits, so that every image is a seed.
    let how = image.last().map_or(0, |byte| byte ^ image[image.len() / 2]);
    let chunk_len = [61, 512, 4096, 1 << 20][usize::from(how % 4)];
    let parked_bytes = [0, 2000, 16384, 1 << 20][usize::from(how / 4 % 4)];
    let whole_image_bytes = [0, 10_000][usize::from(how / 16 % 2)];
    let limits = Limits { index_bytes: 64 << 10, parked_bytes, whole_image_bytes };
    let space_behind = [0, 5000, 1 << 20][usize::from(how / 32 % 3)];
    let by_ranges = reader::by_ranges(image);
    if let Ok(outcome) = checked::in_one_pass_with(image, chunk_len, limits, space_behind) {
        let by_ranges = by_ranges.expect("what one pass can read, ranges can");
        assert!(outcome.disk == by_ranges, "two disks");
    }
}
