//! Any bytes, read as a tar archive: entries and their content, or refused.

#![no_main]

use std::io::Read;

use formats::tar::{Archive, is_tar};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = is_tar(bytes);
    let mut archive = Archive::new(bytes);
    let mut scrap = Vec::new();
    while let Ok(Some(entry)) = archive.next_entry() {
        assert_eq!(archive.left(), entry.size);
        // Every other content is skipped instead.
        if entry.mode & 1 == 0 {
            scrap.clear();
            let whole = archive.read_to_end(&mut scrap).is_ok();
            assert!(!whole || scrap.len() as u64 == entry.size);
        }
        assert!(archive.position() <= bytes.len() as u64);
    }
    // Files with holes may be endless: their holes are passed over, and only what is stored is read.
    let mut archive = Archive::with_holes(bytes);
    while let Ok(Some(entry)) = archive.next_entry() {
        let (mut left, mut piece) = (entry.size, [0; 512]);
        loop {
            left -= archive.skip_hole();
            assert_eq!(archive.left(), left);
            match archive.read(&mut piece) {
                Ok(0) => break assert_eq!(left, 0),
                Ok(count) => left -= count as u64,
                Err(_) => break,
            }
        }
    }
});
