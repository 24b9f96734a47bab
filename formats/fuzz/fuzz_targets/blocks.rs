//! Any bytes, read as vmdk, vdi, vhd or vhdx, by ranges and in one pass: refused, or one disk.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../both.rs"]
mod both;
#[allow(dead_code)] // the tests look at more
#[path = "../../tests/qcow2/checked.rs"]
mod checked;
#[allow(dead_code)]
#[path = "../../tests/qcow2/reader.rs"]
mod reader;

fuzz_target!(|image: &[u8]| {
    if !image.starts_with(b"QFI\xfb") {
        both::read(image);
    }
});
