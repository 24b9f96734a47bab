//! Images cut short, and images with wrong bits: refused, or read as `qemu-img` reads them. Never a panic.

use std::collections::BTreeSet;
use std::ffi::OsString;

use formats::index::Tables;
use proptest::prelude::*;
use testkit::{
    BlockOptions, Fill, Image, KIB, MIB, QemuImg, Random, SparseDisk, Tool, require_tool,
};

use crate::{patch, read_both_ways, reader};

const DISK_MAX: u64 = 64 * MIB;

fn disk() -> SparseDisk {
    SparseDisk::new(3 * MIB)
        .with(0, 100 * KIB, Fill::Text(1))
        .with(MIB + 700, 3 * KIB, Fill::Random(2))
        .with(2 * MIB, 200 * KIB, Fill::Pattern)
        .with(3 * MIB - 512, 512, Fill::Byte(9))
}

/// Where in the image something begins or ends.
fn boundaries(image: &[u8]) -> BTreeSet<u64> {
    let layout = reader::header_of(image, Some(image.len() as u64), DISK_MAX).unwrap();
    let root = layout.root_range();
    let tables = Tables::parse(&*layout, &image[root.start as usize..root.end as usize]).unwrap();
    let mut boundaries = BTreeSet::from([0, 8, 64, 512, 1024, 1536, layout.head_len()]);
    boundaries.extend([root.start, root.end, image.len() as u64]);
    boundaries.extend(
        layout.reserved_ranges().into_iter().flat_map(|(range, _)| [range.start, range.end]),
    );
    for index in tables.in_file_order() {
        let range = tables.range(index).unwrap();
        let table = &image[range.start as usize..range.end as usize];
        boundaries.extend([range.start, range.end]);
        let hosts = tables.pieces(index, table).unwrap().map(|piece| piece.unwrap().host_range());
        boundaries.extend(hosts.flat_map(|range| [range.start, range.end]));
    }
    boundaries
}

#[test]
fn an_image_cut_short_is_refused_unless_nothing_of_the_disk_is_missing() {
    let Some(qemu) = QemuImg::require() else { return };
    for how in BlockOptions::each() {
        let image = qemu.blocks(&disk(), &how).bytes();
        let whole = reader::by_ranges(&image).unwrap();
        let mut refused = 0;
        for boundary in boundaries(&image) {
            for end in [boundary.saturating_sub(1), boundary, boundary + 1] {
                let end = image.len().min(end as usize);
                match read_both_ways(&image[..end], DISK_MAX) {
                    Some(disk) => assert!(disk == whole, "{how:?} cut at {end}"),
                    None => refused += 1,
                }
            }
        }
        assert!(refused > 20, "{how:?}: hardly anything refused");
    }
}

/// What qemu-img makes of an image that it may well refuse.
fn disk_by_qemu(qemu: &Tool, image: &[u8], format: &str) -> Option<Vec<u8>> {
    let (image, raw) = (Image::from_bytes(image), Image::from_bytes(&[]));
    let formats = ["convert", "-f", format, "-O", "raw"].map(OsString::from);
    let paths = [image.path().into(), raw.path().into()];
    let run = qemu.command(formats.into_iter().chain(paths)).output().unwrap();
    run.status.success().then(|| raw.bytes())
}

/// Bytes in which a wrong bit matters: all but the data, and what is zero anyway.
fn metadata(image: &[u8]) -> Vec<usize> {
    let layout = reader::header_of(image, Some(image.len() as u64), DISK_MAX).unwrap();
    let root = layout.root_range();
    let tables = Tables::parse(&*layout, &image[root.start as usize..root.end as usize]).unwrap();
    let mut places: Vec<usize> = (0..512).chain(root.start as usize..root.end as usize).collect();
    for index in tables.in_file_order() {
        let range = tables.range(index).unwrap();
        places.extend(range.start as usize..(range.end as usize).min(range.start as usize + 256));
    }
    match &image[..4] {
        b"cone" => places.extend(512..1536),
        b"vhdx" => places.extend((64 << 10..(64 << 10) + 96).chain(192 << 10..(192 << 10) + 96)),
        b"KDMV" => places.extend(512..1024),
        _ => {}
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn wrong_bits_are_refused_or_read_as_qemu_img_reads_them(
        kind in 0..9_usize,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..3),
        seal: bool,
    ) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let Some(tool) = require_tool("qemu-img") else { return Ok(()) };
        let how = BlockOptions::each().swap_remove(kind);
        let mut image = qemu.blocks(&disk(), &how).bytes();
        let places = metadata(&image);
        for (place, bit) in flips {
            image[*place.get(&places)] ^= 1 << bit;
        }
        match (seal, how.format) {
            (true, "vpc") => patch::seal_vhd(&mut image),
            (true, "vhdx") => patch::seal_vhdx(&mut image),
            _ => {}
        }
        if let Some(disk) = read_both_ways(&image, DISK_MAX)
            && let Some(expected) = disk_by_qemu(&tool, &image, how.format)
        {
            prop_assert!(disk == expected, "another disk: {} and {}", disk.len(), expected.len());
        }
    }

    #[test]
    fn arbitrary_damage_never_panics(kind in 0..9_usize, seed: u64, count in 1..32_u64) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let how = BlockOptions::each().swap_remove(kind);
        let mut image = qemu.blocks(&SparseDisk::new(MIB).with(0, 9000, Fill::Text(1)), &how).bytes();
        let places = metadata(&image);
        let mut random = Random::new(seed);
        for _ in 0..count {
            let at = places[random.below(places.len() as u64) as usize];
            image[at] = [0, 1, 0xff, random.next_u64() as u8][random.below(4) as usize];
        }
        if random.below(4) > 0 {
            match how.format {
                "vpc" => patch::seal_vhd(&mut image),
                "vhdx" => patch::seal_vhdx(&mut image),
                _ => {}
            }
        }
        read_both_ways(&image, DISK_MAX);
    }
}
