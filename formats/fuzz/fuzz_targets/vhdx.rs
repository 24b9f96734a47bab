//! Any bytes as the fields of a vhdx image, its checksums put right: refused, or one disk both ways.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../both.rs"]
mod both;
#[allow(dead_code)] // the tests look at more
#[path = "../../tests/qcow2/checked.rs"]
mod checked;
#[allow(dead_code)]
#[path = "../../tests/blocks/patch.rs"]
mod patch;
#[allow(dead_code)]
#[path = "../../tests/qcow2/reader.rs"]
mod reader;

/// Where the fields are, and how many bytes of them are taken from the input. The seed `image` is made of these parts of one
/// that `qemu-img` wrote with `block_size=1M`.
const FIELDS: [(usize, usize); 6] = [
    (64 << 10, 80),
    (192 << 10, 80),
    (2 << 20, 32),
    (3 << 20, 192),
    ((3 << 20) + (64 << 10), 64),
    (4 << 20, 512),
];
const LEN: usize = 5 << 20;

fuzz_target!(|fields: &[u8]| {
    let mut image = vec![0; LEN];
    image[..8].copy_from_slice(b"vhdxfile");
    let mut rest = fields;
    for (at, len) in FIELDS {
        let (now, later) = rest.split_at(rest.len().min(len));
        image[at..at + now.len()].copy_from_slice(now);
        rest = later;
    }
    patch::seal_vhdx(&mut image);
    both::read(&image);
});
