//! Rejected images, the messages, and that both methods of reading agree.

use formats::one_pass::Limits;

use crate::checked::in_one_pass;
use crate::crafted::Crafted;
use crate::reader;

/// Both routes refuse the image, with this text.
fn check(image: &Crafted, expected: &str) {
    let by_ranges = reader::by_ranges(&image.bytes).unwrap_err().to_string();
    assert_eq!(by_ranges, expected, "by ranges");
    let in_one_pass = in_one_pass(&image.bytes, 1000, Limits::default()).unwrap_err().to_string();
    assert_eq!(in_one_pass, expected, "in one pass");
}

/// Both routes refuse the image once it is changed.
fn check_change(change: impl FnOnce(&mut Crafted), expected: &str) {
    let mut image = Crafted::new(3, 9);
    change(&mut image);
    check(&image, expected);
}

#[test]
fn valid_crafted_image_is_read() {
    for image in
        [Crafted::new(2, 9), Crafted::new(3, 9), Crafted::new(3, 16), Crafted::extended(14)]
    {
        let disk = reader::by_ranges(&image.bytes).unwrap();
        assert!(disk == image.bytes[image.cluster(5) as usize..]);
        let outcome = in_one_pass(&image.bytes, 1000, Limits::default()).unwrap();
        assert!(outcome.disk == disk);
    }
}

#[test]
fn other_files_are_never_opened() {
    check_change(
        |image| {
            image.put_u64(8, 300);
            image.put_u32(16, 11);
            image.put(300, b"/etc/\npass\xff, and what follows");
        },
        "the image is invalid because it has invalid backing file /etc/\\npass\u{fffd}",
    );
    check_change(
        |image| image.put_u64(72, 1 << 2),
        "the image is invalid because it has an external data file",
    );
    check_change(
        |image| {
            image.put_u64(8, u64::MAX);
            image.put_u32(16, u32::MAX);
        },
        "the image is invalid because it has invalid backing file ",
    );
}

#[test]
fn encrypted_images_are_refused() {
    check_change(|image| image.put_u32(32, 1), "the image is encrypted (AES)");
    check_change(|image| image.put_u32(32, 2), "the image is encrypted (LUKS)");
    check_change(|image| image.put_u32(32, 77), "the image is encrypted (method 77)");
}

#[test]
fn unknown_features_are_refused_by_name() {
    check_change(
        |image| {
            image.put_u64(72, 1 << 5 | 1 << 63);
            image.put_u32(112, 0x6803_f857);
            image.put_u32(116, 96);
            image.put(120, b"\x01\x05of no use");
            image.put(168, b"\x00\x05time \x1b travel");
        },
        "the image needs unsupported features: time \\u{1b} travel, incompatible feature 63",
    );
}

#[test]
fn a_corrupt_image_is_refused_and_a_dirty_one_is_read() {
    check_change(|image| image.put_u64(72, 1 << 1), "the image is marked as corrupt");
    let mut dirty = Crafted::new(3, 9);
    dirty.put_u64(72, 1 << 0);
    dirty.put_u64(80, 1 << 0); // lazy reference counts
    dirty.put_u64(88, u64::MAX); // features that only matter to a writer
    assert!(reader::by_ranges(&dirty.bytes).is_ok());
}

#[test]
fn versions_and_sizes_of_the_header_are_checked() {
    let version = |version| format!("qcow2 version {version} is not supported");
    for other in [0, 1, 4, u32::MAX] {
        check_change(|image| image.put_u32(4, other), &version(other));
    }
    check_change(|image| image.put(0, b"QED\0"), "this is not a qcow2 image");
    for length in [0, 103, 513, u32::MAX] {
        let text = format!("a header of {length} bytes is impossible");
        check_change(|image| image.put_u32(100, length), &text);
    }
    for bits in [0, 8, 22, u32::MAX] {
        let text = format!("a cluster size of 2^{bits} bytes is not supported, only 2^9 to 2^21");
        check_change(|image| image.put_u32(20, bits), &text);
    }
    for order in [7, u32::MAX] {
        let text = format!("reference counts of 2^{order} bits are not supported");
        check_change(|image| image.put_u32(96, order), &text);
    }
}

#[test]
fn header_extensions_end_within_the_header() {
    for (length, read) in [(512 - 120, true), (512 - 119, false), (u32::MAX, false)] {
        let mut image = Crafted::new(3, 9);
        image.put_u32(112, 0x1234_5678);
        image.put_u32(116, length);
        if read {
            assert!(reader::by_ranges(&image.bytes).is_ok());
        } else {
            check(&image, "the header extension at byte 112 is truncated");
        }
    }
}

#[test]
fn compression_types_are_checked() {
    check_change(|image| image.bytes[104] = 2, "compression type 2 is not supported");
    let contradiction = |kind| format!("the compression type {kind} contradicts the feature bits");
    check_change(|image| image.bytes[104] = 1, &contradiction(1));
    check_change(|image| image.put_u64(72, 1 << 3), &contradiction(0));
}

#[test]
fn subclusters_need_large_clusters() {
    check_change(
        |image| image.put_u64(72, 1 << 4),
        "clusters of 2^9 bytes are too small for extended L2 entries, which need 2^14",
    );
}

#[test]
fn the_l1_table_is_neither_too_long_nor_too_short() {
    check_change(
        |image| image.put_u32(36, (4 << 20) + 1),
        "L1 size too big: 4194305 entries, where 4194304 are allowed",
    );
    check_change(
        |image| image.put_u32(36, u32::MAX),
        "L1 size too big: 4294967295 entries, where 4194304 are allowed",
    );
    check_change(
        |image| image.put_u32(36, 0),
        "L1 table is too small: 0 entries, where the disk needs 1",
    );
    check_change(
        |image| image.put_u64(24, i64::MAX as u64),
        "L1 table is too small: 1 entries, where the disk needs 281474976710656",
    );
    check_change(
        |image| image.put_u64(24, 1 << 63),
        "a virtual size of 9223372036854775808 bytes is impossible",
    );
}

#[test]
fn tables_begin_where_clusters_do() {
    let text = |what: &str, at: u64| {
        format!("the {what} begins at byte {at}, which is not the beginning of a cluster")
    };
    for at in [1, 1536 + 8, u64::MAX, 1 << 63] {
        check_change(|image| image.put_u64(40, at), &text("L1 table", at));
        check_change(|image| image.put_u64(48, at), &text("reference count table", at));
    }
    let mut image = Crafted::new(3, 10);
    image.put_u64(image.cluster(3), 512);
    check(&image, &text("L2 table", 512));
    let mut image = Crafted::new(3, 10);
    image.put_u64(image.l2_entry(3), 512);
    check(&image, &text("cluster", 512));
}

#[test]
fn refcount_table_of_impossible_size_is_refused() {
    for clusters in [0, 16385, u32::MAX] {
        let text = format!("a reference count table of {clusters} clusters is impossible");
        check_change(|image| image.put_u32(56, clusters), &text);
    }
}

#[test]
fn nothing_lies_outside_the_file() {
    let text = |what: &str, at: u64| {
        format!("the {what} at byte {at} lies outside the file, which has 8192 bytes")
    };
    check_change(|image| image.put_u64(40, 8192), &text("L1 table", 8192));
    check_change(|image| image.put_u32(36, 833), &text("L1 table", 1536));
    check_change(|image| image.put_u64(48, 1 << 50), &text("reference count table", 1 << 50));
    check_change(
        |image| {
            image.put_u64(48, 6144);
            image.put_u32(56, 5);
        },
        &text("reference count table", 6144),
    );
    check_change(|image| image.put_u64(1536, 8192), &text("L2 table", 8192));
    check_change(|image| image.put_u64(image.l2_entry(3), 8192), &text("cluster", 8192));
    let compressed = 1 << 62 | 8192;
    check_change(
        |image| image.put_u64(image.l2_entry(3), compressed),
        &text("compressed cluster", 8192),
    );
    let compressed = 1 << 62 | 1 << 61 | 8191; // one sector more than the file has
    check_change(
        |image| image.put_u64(image.l2_entry(3), compressed),
        &text("compressed cluster", 8191),
    );
}

#[test]
fn a_file_of_unknown_length_that_ends_too_early_is_refused_at_its_end() {
    // Long enough that its first bytes are not all of it.
    let mut image = Crafted::new(3, 16);
    image.put_u64(image.l2_entry(3), image.cluster(16));
    check(&image, "the cluster at byte 1048576 lies outside the file, which has 1048576 bytes");
    image.put_u64(image.l2_entry(3), 0);
    image.put_u64(image.l2_entry(10), 1 << 62 | 0xff << 54 | image.cluster(15));
    check(
        &image,
        "the compressed cluster at byte 983040 lies outside the file, which has 1048576 bytes",
    );
    image.put_u64(image.cluster(3), image.cluster(16));
    check(&image, "the L2 table at byte 1048576 lies outside the file, which has 1048576 bytes");
}

#[test]
fn tables_overlap_neither_each_other_nor_data() {
    let text =
        |what: &str, at: u64, with: &str| format!("the {what} at byte {at} overlaps the {with}");
    check_change(|image| image.put_u64(40, 0), &text("L1 table", 0, "header"));
    check_change(|image| image.put_u64(48, 0), &text("reference count table", 0, "header"));
    check_change(|image| image.put_u64(40, 512), &text("L1 table", 512, "reference count table"));
    for (at, with) in [(512, "reference count table"), (1536, "L1 table")] {
        check_change(|image| image.put_u64(1536, at), &text("L2 table", at, with));
        check_change(|image| image.put_u64(image.l2_entry(3), at), &text("cluster", at, with));
    }
    check_change(
        |image| image.put_u64(image.l2_entry(3), 2048),
        &text("cluster", 2048, "L2 table"),
    );
    for (host, with) in [(511, "header"), (1535, "L1 table"), (2047, "L2 table")] {
        let compressed = 1 << 62 | 1 << 61 | host; // and so into the next sector
        check_change(
            |image| image.put_u64(image.l2_entry(3), compressed),
            &text("compressed cluster", host, with),
        );
    }
    // The disk has two tables now, in the same place.
    check_change(
        |image| {
            image.put_u64(24, 65 * 512);
            image.put_u32(36, 2);
            image.put_u64(1536 + 8, 2048);
        },
        &text("L2 table", 2048, "another L2 table"),
    );
}

#[test]
fn reserved_bits_are_zero() {
    let text = |what: &str, at: u64, entry: u64| {
        format!("the {what} at byte {at} has reserved bits set: {entry:#018x}")
    };
    for bit in (0..9).chain(56..63) {
        let entry = 1 << 63 | 2048 | 1 << bit;
        check_change(|image| image.put_u64(1536, entry), &text("L1 entry", 1536, entry));
    }
    for bit in (1..9).chain(56..62) {
        let entry = 1 << 63 | 4096 | 1 << bit;
        check_change(|image| image.put_u64(2048 + 24, entry), &text("L2 entry", 2072, entry));
    }
    // Bit 0 means "zero" in version 3, and nothing elsewhere.
    let mut image = Crafted::new(2, 9);
    image.put_u64(2048, 4096 | 1);
    check(&image, &text("L2 entry", 2048, 4096 | 1));
    let mut image = Crafted::extended(14);
    image.put_u64(image.l2_entry(0), image.cluster(5) | 1);
    check(&image, &text("L2 entry", image.l2_entry(0), image.cluster(5) | 1));
}

#[test]
fn subclusters_do_not_contradict_themselves() {
    let text = |at: u64, bitmap: u64| {
        format!("the L2 entry at byte {at} contradicts itself: subclusters {bitmap:#018x}")
    };
    let mut image = Crafted::extended(14);
    let (at, bitmap) = (image.l2_entry(2), 0x8000_0000_8000_0000);
    image.put_u64(at + 8, bitmap);
    check(&image, &text(at, bitmap));
    let mut image = Crafted::extended(14);
    image.put_u64(at, 0);
    image.put_u64(at + 8, 1);
    check(&image, &text(at, 1));
}

#[test]
fn a_cluster_used_twice_takes_random_access() {
    let mut image = Crafted::new(3, 9);
    for guest in [3, 7] {
        image.put_u64(image.l2_entry(guest), image.cluster(9));
    }
    let disk = reader::by_ranges(&image.bytes).unwrap();
    assert!(disk[3 * 512..4 * 512] == disk[7 * 512..8 * 512]);
    let error = in_one_pass(&image.bytes, 1000, Limits::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image cannot be read in one pass: byte 4608 of the file is used more than once"
    );
}

#[test]
fn too_large_an_index_takes_random_access() {
    let image = Crafted::new(3, 9);
    for (index_bytes, fits) in [(16, false), (1 << 20, true)] {
        let outcome = in_one_pass(
            &image.bytes,
            1000,
            Limits { index_bytes, parked_bytes: 0, whole_image_bytes: 0 },
        );
        assert_eq!(outcome.is_ok(), fits);
    }
}
