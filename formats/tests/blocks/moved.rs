//! Images whose tables stand where `qemu-img` would not put them: behind their data, or at the end of a stream.

use formats::one_pass::{Limits, OnePassError};
use testkit::{BlockOptions, Fill, Image, KIB, MIB, QemuImg, SparseDisk};

use crate::checked::in_one_pass;
use crate::patch::{be_u32, le_u32, le_u64, put, seal_vhd, seal_vhdx};
use crate::{TARGET_ONLY, reader};

/// Half full, so that there are free clusters to park in.
fn disk() -> SparseDisk {
    SparseDisk::new(16 * MIB)
        .with(0, 3 * MIB, Fill::Pattern)
        .with(7 * MIB, 2 * MIB + 512, Fill::Text(3))
        .with(15 * MIB + 100, 5000, Fill::Random(3))
}

/// Both ways see what `qemu-img` sees, however little memory there is.
fn check(qemu: &QemuImg, image: &[u8], format: &str, parked: bool) {
    let expected = qemu.to_raw(Image::from_bytes(image).path(), format);
    assert!(reader::by_ranges(image).unwrap() == expected, "another disk by ranges");
    for chunk_len in [1000, 1 << 20] {
        for parked_bytes in [0, 256 << 10, 64 << 20] {
            let limits = Limits { parked_bytes, ..TARGET_ONLY };
            let outcome = in_one_pass(image, chunk_len, limits).unwrap();
            assert!(outcome.disk == expected, "another disk in one pass");
            assert_eq!(outcome.moved.stored > 0, parked && parked_bytes < 1 << 20);
        }
    }
}

#[test]
fn a_vhds_table_may_lie_behind_all_blocks() {
    let Some(qemu) = QemuImg::require() else { return };
    let mut image = qemu.blocks(&disk(), &BlockOptions::new("vpc", "force_size=on")).bytes();
    let (table, len) = (be_u32(&image, 512 + 20) as usize, 4 * be_u32(&image, 512 + 28) as usize);
    let moved = image[table..table + len].to_vec();
    image[table..table + len].fill(0xee);
    let end = image.len();
    put(&mut image, 512 + 16, &(end as u64).to_be_bytes());
    image.extend(moved);
    seal_vhd(&mut image);
    check(&qemu, &image, "vpc", true);
}

#[test]
fn a_vhdxs_table_may_lie_behind_all_blocks() {
    let Some(qemu) = QemuImg::require() else { return };
    let how = BlockOptions::new("vhdx", "block_size=1M");
    let mut image = qemu.blocks(&disk(), &how).bytes();
    let entry = (192 << 10) + 16;
    let (table, len) = (le_u64(&image, entry + 16) as usize, le_u32(&image, entry + 24) as usize);
    let moved = image[table..table + len].to_vec();
    image[table..table + len].fill(0xee);
    image.resize(image.len().next_multiple_of(1 << 20), 0);
    for entry in [entry, entry + (64 << 10)] {
        let end = image.len() as u64;
        put(&mut image, entry + 16, &end.to_le_bytes());
    }
    image.extend(moved);
    seal_vhdx(&mut image);
    check(&qemu, &image, "vhdx", true);
}

/// Directory and tables of a vmdk: where they are, and what they hold.
fn vmdk_tables(image: &[u8], directory: usize) -> Vec<Vec<u8>> {
    let coverage = le_u64(image, 20) * u64::from(le_u32(image, 44));
    let count = le_u64(image, 12).div_ceil(coverage) as usize;
    let table = |index: usize| {
        let at = le_u32(image, directory + 4 * index) as usize * 512;
        image[at..at + 4 * le_u32(image, 44) as usize].to_vec()
    };
    (0..count).map(table).collect()
}

#[test]
fn a_vmdks_directory_and_tables_may_lie_behind_all_grains() {
    let Some(qemu) = QemuImg::require() else { return };
    let mut image = qemu.blocks(&disk(), &BlockOptions::new("vmdk", "zeroed_grain=on")).bytes();
    let old = le_u64(&image, 56) as usize * 512;
    let tables = vmdk_tables(&image, old);
    let grains = le_u64(&image, 64) as usize * 512;
    image[old..grains].fill(0xee);
    image.resize(image.len().next_multiple_of(512), 0);
    let mut directory = Vec::new();
    for table in tables {
        directory.extend((image.len() as u32 / 512).to_le_bytes());
        image.extend(table);
    }
    let at = image.len() as u64 / 512;
    put(&mut image, 56, &at.to_le_bytes());
    directory.resize(512, 0);
    image.extend(directory);
    check(&qemu, &image, "vmdk", true);
}

/// A stream as VMware writes it, out of one as `qemu-img` does: tables, directory and footer behind the grains.
fn with_footer(image: &[u8]) -> Vec<u8> {
    let old = le_u64(image, 56) as usize * 512;
    let tables = vmdk_tables(image, old);
    let grains = le_u64(image, 64) as usize * 512;
    let mut stream = image.to_vec();
    stream[21 * 512..grains].fill(0);
    put(&mut stream, 56, &[0xff; 8]);
    stream.resize(stream.len().next_multiple_of(512), 0);
    while stream.ends_with(&[0; 512]) {
        stream.truncate(stream.len() - 512); // it would be the end
    }
    let marker = |stream: &mut Vec<u8>, sectors: u64, kind: u32| {
        let mut marker = vec![0; 512];
        put(&mut marker, 0, &sectors.to_le_bytes());
        put(&mut marker, 12, &kind.to_le_bytes());
        stream.extend(marker);
    };
    let mut directory = Vec::new();
    for table in tables {
        marker(&mut stream, table.len() as u64 / 512, 1);
        directory.extend((stream.len() as u32 / 512).to_le_bytes());
        stream.extend(table);
    }
    directory.resize(directory.len().next_multiple_of(512), 0);
    marker(&mut stream, directory.len() as u64 / 512, 2);
    let directory_at = stream.len() as u64 / 512;
    stream.extend(directory);
    marker(&mut stream, 1, 3);
    let mut footer = stream[..512].to_vec();
    put(&mut footer, 56, &directory_at.to_le_bytes());
    stream.extend(footer);
    marker(&mut stream, 0, 0);
    stream
}

fn stream_optimised(qemu: &QemuImg) -> Vec<u8> {
    let how = BlockOptions::new("vmdk", "subformat=streamOptimized");
    qemu.blocks(&disk(), &how).bytes()
}

#[test]
fn a_stream_may_name_its_directory_in_a_footer() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = stream_optimised(&qemu);
    check(&qemu, &image, "vmdk", false);
    check(&qemu, &with_footer(&image), "vmdk", false);
}

#[test]
fn a_stream_whose_tables_name_other_grains_is_not_read_by_its_markers() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = stream_optimised(&qemu);
    let directory = le_u64(&image, 56) as usize * 512;
    let table = le_u32(&image, directory) as usize * 512;
    let entry = |image: &[u8], index: usize| le_u32(image, table + 4 * index);
    assert!(entry(&image, 0) > 1 && entry(&image, 1) > 1);
    let swapped = [entry(&image, 1), entry(&image, 0)];
    let cases: [(usize, u32); 3] = [(1, 0), (200, swapped[0]), (0, swapped[0])];
    for (index, value) in cases {
        let mut image = image.clone();
        put(&mut image, table + 4 * index, &value.to_le_bytes());
        for image in [with_footer(&image), image] {
            let outcome = in_one_pass(&image, 10_000, Limits::default());
            assert!(matches!(outcome, Err(OnePassError::NeedsRandomAccess { .. })), "{outcome:?}");
            // A grain that is not mapped is skipped; one that is mapped elsewhere is an error.
            assert_eq!(reader::by_ranges(&image).is_ok(), value == 0);
        }
    }
}

#[test]
fn a_stream_cut_short_is_refused() {
    let Some(qemu) = QemuImg::require() else { return };
    let image = with_footer(
        &qemu
            .blocks(
                &SparseDisk::new(MIB).with(0, 100 * KIB, Fill::Text(1)),
                &BlockOptions::new("vmdk", "subformat=streamOptimized"),
            )
            .bytes(),
    );
    for end in (1..=image.len() / 512).map(|sector| image.len() - sector * 512) {
        assert!(in_one_pass(&image[..end], 4096, TARGET_ONLY).is_err(), "cut at {end}");
        assert!(reader::by_ranges(&image[..end]).is_err(), "cut at {end}");
    }
}
