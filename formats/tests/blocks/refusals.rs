//! Rejected images, the messages, and that both methods of reading agree.

use testkit::{BlockOptions, Fill, KIB, MIB, QemuImg, SparseDisk};

use crate::checked::in_one_pass;
use crate::patch::{le_u32, le_u64, put, seal_vhd, seal_vhdx};
use crate::{TARGET_ONLY, reader};

type Change = (&'static str, fn(&mut Vec<u8>), &'static str);

/// Both ways refuse the image once it is changed, with this text.
fn check(how: &BlockOptions, seal: fn(&mut [u8]), changes: &[Change]) {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::new(3 * MIB).with(0, 200 * KIB, Fill::Pattern);
    let image = qemu.blocks(&disk, how).bytes();
    assert!(reader::by_ranges(&image).is_ok());
    for (case, change, expected) in changes {
        let mut image = image.clone();
        change(&mut image);
        seal(&mut image);
        let by_ranges = reader::by_ranges(&image).expect_err(case).to_string();
        assert_eq!(by_ranges, *expected, "{case}, by ranges");
        let in_one_pass = in_one_pass(&image, 1000, TARGET_ONLY).expect_err(case).to_string();
        assert_eq!(in_one_pass, *expected, "{case}, in one pass");
    }
}

#[test]
fn vdi() {
    let how = BlockOptions::new("vdi", "static=off");
    let parent = "the vdi image is a difference to another image, which is never opened";
    check(
        &how,
        |_| (),
        &[
            ("difference", |image| image[0x4c] = 4, parent),
            ("link", |image| image[0x1a8] = 1, parent),
            ("parent", |image| image[0x1b8] = 1, parent),
            ("version", |image| image[0x44] = 2, "vdi version 65538 is not supported"),
            (
                "sector size",
                |image| put(image, 0x168, &4096_u32.to_le_bytes()),
                "sector size 4096 at byte 360 is not supported",
            ),
            (
                "block size",
                |image| put(image, 0x178, &512_u32.to_le_bytes()),
                "block size 512 at byte 376 is not supported",
            ),
            (
                "additional data",
                |image| image[0x17c] = 1,
                "additional block data length 1 at byte 380 is not supported",
            ),
            (
                "too large",
                |image| image[0x175] = 0xff,
                "a virtual size of 280375468228608 bytes is impossible",
            ),
            (
                "too few blocks",
                |image| image[0x180] = 2,
                "the block map is too small: 2 entries, where the disk needs 3",
            ),
            (
                "map in the header",
                |image| put(image, 0x154, &[0; 4]),
                "block map offset 0 at byte 340 is not supported",
            ),
            (
                "data in the map",
                |image| put(image, 0x158, &512_u32.to_le_bytes()),
                "the data at byte 512 overlaps the block map",
            ),
            (
                "block outside the map",
                |image| image[512] = 3,
                "block number 3 at byte 512 is not supported",
            ),
        ],
    );
}

#[test]
fn vhd() {
    let how = BlockOptions::new("vpc", "subformat=dynamic,force_size=on");
    check(
        &how,
        seal_vhd,
        &[
            (
                "difference",
                |image| image[63] = 4,
                "the vhd image is a difference to another image, which is never opened",
            ),
            ("kind", |image| image[63] = 5, "disk type 5 at byte 60 is not supported"),
            ("version", |image| image[13] = 2, "vhd version 131072 is not supported"),
            (
                "header version",
                |image| image[512 + 25] = 2,
                "vhd header version 131072 is not supported",
            ),
            (
                "header",
                |image| image[512] = b'C',
                "the vhd header is damaged near byte 512: it does not begin as one",
            ),
            (
                "header in the footer",
                |image| put(image, 16, &[0; 8]),
                "header offset 0 at byte 16 is not supported",
            ),
            (
                "block size",
                |image| image[512 + 32] = 0xff,
                "block size 4280287232 at byte 544 is not supported",
            ),
            (
                "odd block size",
                |image| image[512 + 35] = 1,
                "block size 2097153 at byte 544 is not supported",
            ),
            (
                "table too small",
                |image| put(image, 512 + 28, &1_u32.to_be_bytes()),
                "the block table is too small: 1 entries, where the disk needs 2",
            ),
            (
                "table in the header",
                |image| put(image, 512 + 16, &1024_u64.to_be_bytes()),
                "the block table at byte 1024 overlaps the header",
            ),
            (
                "table in the footer",
                |image| put(image, 512 + 16, &100_u64.to_be_bytes()),
                "block table offset 100 at byte 528 is not supported",
            ),
            (
                "too large",
                |image| image[48] = 1,
                "a virtual size of 72057594041073664 bytes is impossible",
            ),
        ],
    );
    check(
        &how,
        |_| (),
        &[
            (
                "footer's checksum",
                |image| image[100] ^= 1,
                "the vhd footer is damaged near byte 64: its checksum is wrong",
            ),
            (
                "header's checksum",
                |image| image[1000] ^= 1,
                "the vhd header is damaged near byte 512: its checksum is wrong",
            ),
            (
                "block in the header",
                |image| put(image, 1536, &1_u32.to_be_bytes()),
                "the block at byte 1024 overlaps the header",
            ),
        ],
    );
}

/// Both headers of a VHDX, or both of its region tables.
fn twice(image: &mut [u8], at: usize, value: &[u8]) {
    put(image, at, value);
    put(image, at + (64 << 10), value);
}

#[test]
fn vhdx() {
    const METADATA: usize = 3 << 20;
    const ITEMS: usize = METADATA + 32;
    const PARAMETERS: usize = METADATA + (64 << 10);
    let how = BlockOptions::new("vhdx", "block_size=1M");
    let parent = "the vhdx image is a difference to another image, which is never opened";
    check(
        &how,
        seal_vhdx,
        &[
            (
                "log",
                |image| twice(image, (64 << 10) + 48, &[1]),
                "the vhdx image was not closed: changes in its log have to be written back first, by opening it with the \
             program that wrote it",
            ),
            (
                "version",
                |image| twice(image, (64 << 10) + 66, &[2]),
                "vhdx version 2 is not supported",
            ),
            (
                "regions",
                |image| twice(image, (192 << 10) + 8, &[0, 8]),
                "region count 2048 at byte 196616 is not supported",
            ),
            (
                "unknown region",
                |image| {
                    twice(image, (192 << 10) + 8, &[3]);
                    twice(image, (192 << 10) + 16 + 64 + 28, &[1]);
                },
                "the vhdx image uses a region that has to be known, which is not supported",
            ),
            (
                "no metadata",
                |image| twice(image, (192 << 10) + 8, &[1]),
                "the vhdx region table has no metadata",
            ),
            (
                "region in the header",
                |image| twice(image, (192 << 10) + 32, &[0; 8]),
                "the vhdx region is damaged near byte 0: it begins in the header, or not at a whole MiB",
            ),
            (
                "regions overlap",
                |image| twice(image, (192 << 10) + 32, &(3_u64 << 20).to_le_bytes()),
                "the block table at byte 3145728 overlaps the metadata",
            ),
            (
                "metadata",
                |image| image[METADATA] = b'M',
                "the vhdx metadata is damaged near byte 3145728: it does not begin as such",
            ),
            (
                "items",
                |image| put(image, METADATA + 10, &[0, 8]),
                "the vhdx metadata is damaged near byte 3145728: it has too many items",
            ),
            ("parent", |image| image[PARAMETERS + 4] |= 2, parent),
            (
                "block size",
                |image| put(image, PARAMETERS, &(3_u32 << 20).to_le_bytes()),
                "block size 3145728 at byte 3145728 is not supported",
            ),
            (
                "unknown item",
                |image| {
                    image[ITEMS] ^= 1;
                    put(image, ITEMS + 24, &[4])
                },
                "the vhdx image uses metadata that has to be known, which is not supported",
            ),
            (
                "lost item",
                |image| {
                    image[ITEMS] ^= 1;
                    put(image, ITEMS + 24, &[0])
                },
                "the vhdx metadata has no vhdx file parameters",
            ),
            (
                "item outside",
                |image| put(image, ITEMS + 16, &(1_u32 << 20).to_le_bytes()),
                "the vhdx metadata is damaged near byte 3145728: an item is not where it has to be",
            ),
            (
                "partial block",
                |image| image[2 << 20] = 7,
                "the vhdx image uses partially present blocks of a difference, which is not supported",
            ),
            (
                "block state",
                |image| image[2 << 20] = 5 | 0x10,
                "the block entry at byte 2097152 has reserved bits set: 0x0000000000800015",
            ),
            (
                "block in the metadata",
                |image| put(image, 2 << 20, &(3_u64 << 20 | 6).to_le_bytes()),
                "the block at byte 3145728 overlaps the metadata",
            ),
        ],
    );
    check(
        &how,
        |_| (),
        &[
            (
                "headers",
                |image| twice(image, (64 << 10) + 200, &[1]),
                "the vhdx image is damaged near byte 65536: neither of its headers is whole",
            ),
            (
                "region tables",
                |image| twice(image, (192 << 10) + 200, &[1]),
                "the vhdx image is damaged near byte 196608: neither of its region tables is whole",
            ),
        ],
    );
}

/// Replaces text in the descriptor by other text of the same length.
fn descriptor(image: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let text = &mut image[512..21 * 512];
    let at = text.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
    put(text, at, to.as_bytes());
}

#[test]
fn vmdk() {
    fn directory(image: &[u8]) -> usize {
        le_u64(image, 56) as usize * 512
    }
    fn table(image: &[u8]) -> usize {
        le_u32(image, directory(image)) as usize * 512
    }
    let how = BlockOptions::new("vmdk", "subformat=monolithicSparse");
    let others = |kind: &str, name: &str| {
        let text = "keeps its data in other files, which are never opened";
        format!("the vmdk ({kind}) {text}: {name}")
    };
    check(
        &how,
        |_| (),
        &[
            (
                "parent",
                |image| descriptor(image, "parentCID=ffffffff", "parentCID=12345678"),
                "the image is invalid because it has invalid backing file ",
            ),
            ("version", |image| image[4] = 4, "vmdk version 4 is not supported"),
            (
                "as text",
                |image| image[75] = b'\n',
                "the vmdk header is damaged near byte 73: its line ends were changed, as if it were text",
            ),
            ("grain", |image| image[20] = 3, "grain sector count 3 at byte 20 is not supported"),
            (
                "huge grain",
                |image| image[22] = 1,
                "grain sector count 65664 at byte 20 is not supported",
            ),
            (
                "tables",
                |image| image[45] = 4,
                "grain table entry count 1024 at byte 44 is not supported",
            ),
            (
                "compressed",
                |image| image[10] |= 1,
                "the vmdk uses compressed grains without markers, or not deflated, which is not supported",
            ),
            (
                "markers",
                |image| image[10] |= 2,
                "the vmdk uses markers without compression, which is not supported",
            ),
            (
                "too large",
                |image| image[18] = 1,
                "a virtual size of 144115188079001600 bytes is impossible",
            ),
            (
                "capacity",
                |image| image[19] = 1,
                "capacity 72057594037934080 at byte 12 is not supported",
            ),
            (
                "descriptor",
                |image| image[38] = 1,
                "descriptor length 33564672 at byte 36 is not supported",
            ),
            (
                "directory",
                |image| put(image, 56, &0_u64.to_le_bytes()),
                "the grain directory at byte 0 overlaps the header",
            ),
            (
                "directory in the descriptor",
                |image| put(image, 56, &1_u64.to_le_bytes()),
                "the grain directory at byte 512 overlaps the descriptor",
            ),
            (
                "table in the header",
                |image| {
                    let at = directory(image);
                    put(image, at, &1_u32.to_le_bytes());
                },
                "the grain table at byte 512 overlaps the descriptor",
            ),
            (
                "grain in the descriptor",
                |image| {
                    let at = table(image);
                    put(image, at, &2_u32.to_le_bytes());
                },
                "the grain at byte 1024 overlaps the grain directory",
            ),
            (
                "one is no zero here",
                |image| {
                    let at = table(image);
                    put(image, at, &1_u32.to_le_bytes());
                },
                "the grain at byte 512 overlaps the grain directory",
            ),
        ],
    );
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::new(3 * MIB).with(0, 200 * KIB, Fill::Pattern);
    let image = qemu.blocks(&disk, &how).bytes();
    let refused = |image: &[u8]| {
        let by_ranges = reader::by_ranges(image).unwrap_err().to_string();
        let in_one_pass = in_one_pass(image, 1000, TARGET_ONLY).unwrap_err().to_string();
        assert_eq!(by_ranges, in_one_pass);
        by_ranges
    };
    let mut part = image.clone();
    descriptor(&mut part, "monolithicSparse", "twoGbMaxExtentSp");
    assert!(refused(&part).starts_with(&others("twoGbMaxExtentSp", "testkit-image-")));
    let mut flat = image.clone();
    descriptor(&mut flat, "SPARSE", "FLAT  ");
    assert!(refused(&flat).starts_with(&others("monolithicSparse", "testkit-image-")));
    let mut extent = image;
    put(&mut extent, 28, &[0; 16]);
    assert_eq!(refused(&extent), others("an extent without a descriptor", "the other parts"));

    let text = "# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
                RW 2048 FLAT \"/etc/shadow\u{1b}\" 0\n";
    assert_eq!(refused(text.as_bytes()), others("monolithicFlat", "/etc/shadow\\u{1b}"));
    let text = "# Disk DescriptorFile\nparentCID=1\nparentFileNameHint=\"base.vmdk\"\n";
    assert_eq!(
        refused(text.as_bytes()),
        "the image is invalid because it has invalid backing file base.vmdk"
    );
    let old = [&b"COWD"[..], &[0; 600]].concat();
    assert_eq!(
        refused(&old),
        "the vmdk uses the sparse format of old ESX hosts, which is not supported"
    );
}
