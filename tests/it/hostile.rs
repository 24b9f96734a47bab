//! Hostile images: refused in bounded time and memory, without access to other files.

use std::time::Duration;

use testkit::{
    BlockOptions, Compressor, Fill, Image, MIB, Qcow2Options, QemuImg, Random, SparseDisk, compress,
};
use tests::{Import, Target, report};

/// Limits of a refusal.
const MEMORY_MAX: u64 = 64 * MIB;

/// Refused in bounded memory, with this text; no target looks complete.
#[track_caller]
fn refused(image: &Image, words: &[&str]) -> String {
    let target = Target::file();
    let finished = Import::new(image.path(), target.path()).run();
    assert!(finished.peak_rss <= MEMORY_MAX, "{} bytes of memory", finished.peak_rss);
    let message = finished.expect_refusal();
    assert!(words.iter().any(|words| message.contains(words)), "{message}");
    target.expect_unfinished(&[], "refused");
    message
}

fn qcow2_image() -> Option<Image> {
    let disk = SparseDisk::mixed(4 * MIB, 11);
    Some(QemuImg::require()?.qcow2(&disk, &Qcow2Options::default()))
}

/// A qcow2 file with some bytes of its header changed.
fn patched(at: usize, bytes: &[u8]) -> Option<Image> {
    let mut image = qcow2_image()?.bytes();
    image[at..at + bytes.len()].copy_from_slice(bytes);
    Some(Image::from_bytes(&image))
}

#[test]
fn images_that_name_another_file_are_refused() {
    let Some(qemu) = QemuImg::require() else { return };
    let secret = Image::from_bytes(&vec![b's'; 1 << 20]);
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("overlay.qcow2");
    qemu.run(testkit::arguments![
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        secret.path(),
        "-F",
        "raw",
        overlay
    ]);
    refused(&Image::from_bytes(&std::fs::read(&overlay).unwrap()), &["backing file"]);

    let (outside, data) = (folder.path().join("outside.qcow2"), folder.path().join("data"));
    let options = format!("data_file={}", data.display());
    qemu.run(testkit::arguments!["create", "-q", "-f", "qcow2", "-o", options, outside, "1M"]);
    refused(&Image::from_bytes(&std::fs::read(&outside).unwrap()), &["data file"]);

    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
         RW 2048 FLAT \"{}\" 0\n",
        secret.path().display()
    );
    let mut descriptor = descriptor.into_bytes();
    descriptor.resize(1024, b'\n');
    refused(&Image::from_bytes(&descriptor), &["keeps its data in other files"]);

    // The message names only the kind of a differencing image that does not name its parent.
    for (format, at, kind) in [("vdi", 0x4c, 4), ("vpc", 63, 4)] {
        let how = BlockOptions::new(format, "");
        let mut image = qemu.blocks(&SparseDisk::new(MIB), &how).bytes();
        image[at] = kind;
        if format == "vpc" {
            let checksum = u32::from_be_bytes(image[64..68].try_into().unwrap());
            image[64..68].copy_from_slice(&(checksum - 1).to_be_bytes()); // the kind was 3
        }
        refused(&Image::from_bytes(&image), &["difference to another image"]);
    }
}

#[test]
fn unsupported_formats_are_refused_by_name() {
    let Some(qemu) = QemuImg::require() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("encrypted.qcow2");
    let secret = "secret,id=key,data=sesame";
    let options = "encrypt.format=aes,encrypt.key-secret=key";
    qemu.run(testkit::arguments![
        "create", "-q", "--object", secret, "-f", "qcow2", "-o", options, path, "4M"
    ]);
    let mut image = std::fs::read(&path).unwrap();
    refused(&Image::from_bytes(&image), &["encrypted (AES)"]);

    // Before qemu-img creates a LUKS image, it times its key derivation in processor time, and fails where the kernel
    // counts that time in ticks longer than its first trial. So this image gets the header of a LUKS image here: method 2
    // at offset 32, and the extension "full disk encryption header pointer" (16 bytes) as the only one, at offset 112.
    image[32..36].copy_from_slice(&2_u32.to_be_bytes());
    image[112..120].copy_from_slice(&[0x05, 0x37, 0xbe, 0x77, 0, 0, 0, 16]);
    image[120..128].copy_from_slice(&(3_u64 << 16).to_be_bytes());
    image[128..136].copy_from_slice(&0x1f_9000_u64.to_be_bytes());
    image[136..144].fill(0);
    refused(&Image::from_bytes(&image), &["encrypted (LUKS)"]);
}

#[test]
fn absurd_headers_are_refused_in_bounded_memory() {
    // Offsets of the QCOW2 specification, "Header": version 4, cluster_bits 20, size 24, crypt 32, l1_size 36,
    // l1_table_offset 40, incompatible_features 72.
    let table: [(usize, &[u8], &[&str]); 9] = [
        (4, &9_u32.to_be_bytes(), &["version"]),
        (20, &8_u32.to_be_bytes(), &["cluster"]),
        (20, &40_u32.to_be_bytes(), &["cluster"]),
        (24, &u64::MAX.to_be_bytes(), &["size", "large"]),
        (36, &u32::MAX.to_be_bytes(), &["L1 size too big", "L1"]),
        (40, &(!0xffff_u64).to_be_bytes(), &["L1"]),
        (40, &0x123_u64.to_be_bytes(), &["L1"]),
        (72, &(1_u64 << 40).to_be_bytes(), &["feature"]),
        (72, &2_u64.to_be_bytes(), &["corrupt"]),
    ];
    for (at, bytes, words) in table {
        let Some(image) = patched(at, bytes) else { return };
        refused(&image, words);
    }
}

#[test]
fn flipped_bit_ends_in_a_disk_or_an_error() {
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(2 * MIB, 12);
    let how = Qcow2Options { compressed: true, ..Qcow2Options::default() };
    let good = qemu.qcow2(&disk, &how).bytes();
    let mut random = Random::new(77);
    // Tables rather than data: the first clusters, and anywhere.
    let places: Vec<_> = (0..60)
        .map(|round| {
            let within = if round % 3 == 0 { good.len() as u64 } else { 5 << 16 };
            (random.below(within.min(good.len() as u64)) as usize, random.below(8))
        })
        .collect();
    crate::each(&places, |(at, bit)| {
        let mut bytes = good.clone();
        bytes[*at] ^= 1 << bit;
        let (image, target) = (Image::from_bytes(&bytes), Target::file());
        for import in [
            Import::new(image.path(), target.path()),
            Import::from_stdin(image.path(), target.path()),
        ] {
            let finished = import.run();
            assert!(
                finished.peak_rss <= MEMORY_MAX,
                "byte {at} bit {bit}: {} bytes",
                finished.peak_rss
            );
            if !finished.success() {
                finished.expect_refusal();
                target.expect_unfinished(&disk.bytes(), &format!("byte {at} bit {bit}"));
            }
        }
    });
}

#[test]
fn decompression_bomb_is_limited_by_the_target() {
    // 16 GiB of zeroes in 16 MiB of gzip: one member, many times over.
    let Some(member) = compress(Compressor::GZIP.level(9), &vec![0; 256 << 20]) else { return };
    let bomb = Image::from_bytes(&member.repeat(64));
    let Some(target) = Target::device(8 * MIB) else { return };
    let finished = Import::new(bomb.path(), target.path()).start().wait(Duration::from_secs(60));
    assert!(finished.peak_rss <= MEMORY_MAX, "{}", finished.peak_rss);
    let message = finished.expect_refusal();
    assert!(message.contains("choose a larger device"), "{message}");
}

#[test]
fn gigabytes_of_zeroes_become_a_hole() {
    let Some(wire) = compress(Compressor::ZSTD, &vec![0; 256 << 20]) else { return };
    let image = Image::from_bytes(&wire.repeat(8));
    let target = Target::file();
    let finished = Import::new(image.path(), target.path()).run().expect_success();
    let report = report(&finished);
    assert_eq!(
        (report["zeroBytes"].as_u64(), report["bytesWritten"].as_u64()),
        (Some(2 << 30), Some(0))
    );
    assert!(finished.peak_rss <= MEMORY_MAX, "{}", finished.peak_rss);
}

#[test]
fn zstd_window_of_two_gigabytes_is_refused() {
    // RFC 8878, 3.1.1.1.2: exponent 21 is 2^(10+21) bytes. One raw block follows, the last, of 600 bytes.
    let block = ((600_u32 << 3) | 1).to_le_bytes();
    let frame = [&b"\x28\xb5\x2f\xfd\x00"[..], &[21 << 3], &block[..3], &[b'x'; 600]].concat();
    refused(&Image::from_bytes(&frame), &["window", "memory", "large"]);
}

#[test]
fn corrupt_image_is_not_imported_as_a_raw_disk() {
    let mut garbage = SparseDisk::new(MIB).with(0, MIB, Fill::Random(9)).bytes();
    for magic in
        [&b"\x1f\x8b\x08\x00"[..], b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00", b"QFI\xfb\0\0\0\x03"]
    {
        garbage[..magic.len()].copy_from_slice(magic);
        refused(&Image::from_bytes(&garbage), &["cannot decode", "is not", "invalid"]);
    }
}
