//! Images cut short, and images with wrong bits: refused, or read as `qemu-img` reads them. Never a panic.

use std::collections::BTreeSet;
use std::ffi::OsString;

use formats::index::Tables;
use formats::one_pass::{Limits, OnePassError};
use formats::qcow2::Header;
use proptest::prelude::*;
use testkit::{
    Change, Fill, Image, KIB, MIB, Qcow2Options, QemuImg, Random, SparseDisk, Tool, require_tool,
};

use crate::checked::in_one_pass;
use crate::crafted::Crafted;
use crate::reader;

/// Reads the image both ways. What one pass can read, ranges can, and it is the same disk.
fn read_both_ways(image: &[u8]) -> Option<Vec<u8>> {
    reader::header_of(image, None, 64 * MIB).ok()?;
    let by_ranges = reader::by_ranges(image).ok();
    for (chunk_len, parked_bytes) in [(333, 0), (1 << 20, 1 << 20)] {
        let limits = Limits { index_bytes: 1 << 20, parked_bytes, whole_image_bytes: 0 };
        match in_one_pass(image, chunk_len, limits) {
            Ok(outcome) => {
                assert!(Some(&outcome.disk) == by_ranges.as_ref(), "the two ways disagree");
            }
            Err(OnePassError::NeedsRandomAccess { .. } | OnePassError::ParkingFull) => {}
            Err(error) => assert!(by_ranges.is_none(), "only one pass refuses it: {error}"),
        }
    }
    by_ranges
}

/// Where in the image something begins or ends.
fn boundaries(image: &[u8]) -> BTreeSet<u64> {
    let header = Header::parse(&image[..image.len().min(Header::HEAD_LEN)], None).unwrap();
    let l1_range = header.l1_range();
    let l1 = Tables::parse(&header, &image[l1_range.start as usize..]).unwrap();
    let mut boundaries = BTreeSet::from([0, 8, 72, 104, 112, header.cluster_size()]);
    boundaries.extend([l1_range.start, l1_range.end, image.len() as u64]);
    for index in l1.in_file_order() {
        let range = l1.range(index).unwrap();
        let table = range.start;
        boundaries.extend([table, range.end]);
        for piece in l1.pieces(index, &image[table as usize..]).unwrap() {
            let range = piece.unwrap().host_range();
            boundaries.extend([range.start, range.end]);
        }
    }
    boundaries
}

#[test]
fn an_image_cut_short_is_refused_unless_nothing_of_the_disk_is_missing() {
    let Some(qemu) = QemuImg::require() else { return };
    let small = Qcow2Options { cluster_bits: 9, ..Qcow2Options::default() };
    let variants = [
        Qcow2Options { compressed: true, ..small.clone() },
        Qcow2Options { cluster_bits: 14, extended_l2: true, ..small.clone() },
        Qcow2Options { version_2: true, history: vec![Change::Grow(900)], ..small.clone() },
        Qcow2Options { preallocation: Some("full"), ..small },
    ];
    for how in variants {
        let disk = SparseDisk::mixed(48 * KIB, 3).with(20_000, 3_000, Fill::Random(4));
        let image = qemu.qcow2(&disk, &how).bytes();
        let whole = reader::by_ranges(&image).unwrap();
        let mut refused = 0;
        for boundary in boundaries(&image) {
            for end in [boundary.saturating_sub(1), boundary, boundary + 1] {
                let end = image.len().min(end as usize);
                match read_both_ways(&image[..end]) {
                    Some(disk) => assert!(disk == whole, "{how:?} cut at {end}"),
                    None => refused += 1,
                }
            }
        }
        assert!(refused > 20, "{how:?}: hardly anything refused");
    }
}

/// An image whose every structure is small: reading it takes no time, and a wrong bit is soon hit.
fn small_image(kind: u64) -> Crafted {
    let mut image = match kind {
        0 => Crafted::new(2, 9),
        1 => Crafted::new(3, 9),
        2 => Crafted::new(3, 12),
        _ => Crafted::extended(14),
    };
    if kind == 1 {
        // A compressed cluster that begins and ends in the middle of sectors.
        let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut stream = [0; 600];
        let noise: Vec<u8> = (0..512_u64).map(|at| (at * at % 19) as u8).collect();
        let len = deflate.deflate_compress(&noise, &mut stream).unwrap();
        let at = image.cluster(7) + 300;
        image.put(at, &stream[..len]);
        image.put_u64(image.l2_entry(2), 1 << 62 | 1 << 61 | at);
        image.put_u64(image.l2_entry(3), 0);
    }
    image
}

/// What qemu-img makes of an image that it may well refuse.
fn disk_by_qemu(qemu: &Tool, image: &[u8]) -> Option<Vec<u8>> {
    let (image, raw) = (Image::from_bytes(image), Image::from_bytes(&[]));
    let formats = ["convert", "-f", "qcow2", "-O", "raw"].map(OsString::from);
    let paths = [image.path().into(), raw.path().into()];
    let run = qemu.command(formats.into_iter().chain(paths)).output().unwrap();
    run.status.success().then(|| raw.bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn wrong_bits_in_tables_are_refused_or_read_as_qemu_img_reads_them(
        kind in 0..4_u64,
        flips in prop::collection::vec((prop::sample::select(vec![0_u64, 0, 1, 3, 3, 4, 4]), 0..1024_u64), 1..3),
    ) {
        let Some(qemu) = require_tool("qemu-img") else { return Ok(()) };
        let mut image = small_image(kind);
        for (cluster, bit) in flips {
            let at = image.cluster(cluster) + bit / 8;
            image.bytes[at as usize] ^= 1 << (bit % 8);
        }
        if let Some(disk) = read_both_ways(&image.bytes)
            && let Some(expected) = disk_by_qemu(&qemu, &image.bytes)
        {
            prop_assert!(disk == expected, "another disk");
        }
    }

    #[test]
    fn arbitrary_damage_never_panics(kind in 0..4_u64, seed: u64, count in 1..64_u64) {
        let mut image = small_image(kind);
        let mut random = Random::new(seed);
        for _ in 0..count {
            // Mostly in the tables, and mostly something that looks like an entry.
            let at = random.below(image.cluster(5)) / 8 * 8;
            let entry = match random.below(4) {
                0 => random.next_u64(),
                1 => image.cluster(random.below(20)),
                2 => 1 << 62 | random.below(4) << 61 | random.below(image.cluster(16)),
                _ => 1 << random.below(64),
            };
            if at >= image.cluster(1) || random.below(8) == 0 {
                image.put_u64(at, entry);
            }
        }
        read_both_ways(&image.bytes);
    }
}
