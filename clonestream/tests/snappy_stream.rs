//! The old streams, read by the programs and libraries that everybody else reads them with.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use clonestream::snappy::{BLOCK_MAX, Encoder, IDENTIFIER};
use clonestream::tar::{Member, MemberKind, padding, trailer};
use proptest::prelude::*;
use snap::read::FrameDecoder;
use testkit::{Fill, SparseDisk, arguments, require_tool, sparse_disk};

fn unwrapped(stream: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameDecoder::new(stream).read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn snap_decodes_the_chunks() {
    let mut encoder = Encoder::default();
    for len in [0, 1, 17, BLOCK_MAX - 1, BLOCK_MAX, BLOCK_MAX + 1, 3 * BLOCK_MAX + 5] {
        for fill in [Fill::Random(1), Fill::Text(2), Fill::Byte(0), Fill::Pattern] {
            let bytes = SparseDisk::new(len as u64).with(0, len as u64, fill).bytes();
            let mut stream = IDENTIFIER.to_vec();
            encoder.encode(&bytes, &mut stream);
            assert_eq!(unwrapped(&stream), bytes, "{len} {fill:?}");
            let chunks = len.div_ceil(BLOCK_MAX);
            assert!(stream.len() <= IDENTIFIER.len() + len + 8 * chunks, "{len} {fill:?}");
        }
    }
}

#[test]
fn encoded_zeroes_equal_compressed_zeroes() {
    let mut encoder = Encoder::default();
    for len in [0, 1, BLOCK_MAX as u64, 5 * BLOCK_MAX as u64 + 77] {
        let mut stream = IDENTIFIER.to_vec();
        encoder.encode_zeroes(len, &mut stream);
        let bytes = unwrapped(&stream);
        assert!(bytes.len() as u64 == len && bytes.iter().all(|byte| *byte == 0), "{len}");
    }
}

/// A file as a sparse archive of old has it: the parts, then what fills the last block.
fn sparse_file(path: &str, content: &[u8], parts: &[Range<u64>]) -> Vec<u8> {
    let member = Member {
        path: path.as_bytes(),
        kind: MemberKind::Sparse(content.len() as u64, parts),
        mode: 0o640,
        owner: (107, 107),
        modified: 1_700_000_000,
    };
    let mut bytes = member.header();
    for part in parts {
        bytes.extend(&content[part.start as usize..part.end as usize]);
    }
    bytes.resize(bytes.len() + padding(member.content_len()), 0);
    bytes
}

/// The blocks of `unit` bytes that hold something else than zeroes, neighbours as one.
fn parts_of(content: &[u8], unit: usize) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    for (index, block) in content.chunks(unit).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = (index * unit) as u64;
        let end = start + block.len() as u64;
        match parts.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

fn extract(archive: &[u8], directory: &Path) -> bool {
    let Some(tar) = require_tool("tar") else { return false };
    let mut archive = archive.to_vec();
    archive.extend(trailer(archive.len() as u64));
    let path = directory.join(".archive.tar");
    std::fs::write(&path, archive).unwrap();
    tar.run(arguments![
        "--extract",
        "--sparse",
        "--preserve-permissions",
        "-C",
        directory,
        "-f",
        path
    ]);
    std::fs::remove_file(path).unwrap();
    true
}

#[test]
fn tar_reads_every_kind_of_member() {
    let directory = tempfile::tempdir().unwrap();
    let long = format!("folder/{}/{}", "f".repeat(90), "n".repeat(200));
    let long_target = "t".repeat(150);
    let member = |path: &str, kind: MemberKind, content: &[u8]| {
        let modified = 1_600_000_000;
        let path = path.as_bytes();
        let member = Member { path, kind, mode: 0o4751, owner: (0, 0), modified };
        let mut bytes = member.header();
        bytes.extend(content);
        bytes.resize(bytes.len() + padding(member.content_len()), 0);
        bytes
    };
    let hundred = "h".repeat(100);
    let archive = [
        member("folder/", MemberKind::Directory, b""),
        member("empty", MemberKind::Regular(0), b""),
        member(&hundred, MemberKind::Regular(3), b"abc"),
        member(&long, MemberKind::Regular(513), &[7; 513]),
        member("link", MemberKind::Symlink(long_target.as_bytes()), b""),
        member("twin", MemberKind::HardLink(long.as_bytes()), b""),
    ]
    .concat();
    if !extract(&archive, directory.path()) {
        return;
    }
    let at = |name: &str| directory.path().join(name);
    assert_eq!(std::fs::read(at(&long)).unwrap(), [7; 513]);
    assert_eq!(std::fs::read(at(&hundred)).unwrap(), b"abc");
    assert_eq!(std::fs::read(at("empty")).unwrap(), b"");
    assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new(&long_target));
    let (one, twin) =
        (std::fs::metadata(at(&long)).unwrap(), std::fs::metadata(at("twin")).unwrap());
    assert_eq!(one.ino(), twin.ino());
    assert_eq!(one.permissions().mode() & 0o7777, 0o4751);
    assert_eq!(one.mtime(), 1_600_000_000);
}

#[test]
fn tar_reads_holes_of_all_shapes() {
    let unit = 4096_u64;
    let with = |len: u64, data: &[u64]| {
        data.iter().fold(SparseDisk::new(len), |disk, at| disk.with(at * unit, unit, Fill::Pattern))
    };
    let many: Vec<u64> = (0..60).map(|part| 2 * part + 1).collect();
    for (case, disk) in [
        ("nothing but a hole", with(100_000, &[])),
        ("empty", with(0, &[])),
        ("data at the beginning", with(100_000, &[0])),
        ("data at the end", with(10 * unit, &[9])),
        ("an odd end", with(10 * unit - 77, &[1, 9])),
        ("four parts", with(20 * unit, &[1, 3, 5, 19])),
        ("four parts and a hole", with(20 * unit, &[1, 3, 5, 7])),
        ("25 parts", with(51 * unit, &many[..25])),
        ("26 parts", with(60 * unit, &many[..26])),
        ("60 parts", with(200 * unit, &many)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let content = disk.bytes();
        let parts = parts_of(&content, unit as usize);
        if !extract(&sparse_file("disk.img", &content, &parts), directory.path()) {
            return;
        }
        let path = directory.path().join("disk.img");
        assert!(std::fs::read(&path).unwrap() == content, "{case}");
        let data: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let allocated = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(allocated <= data + 8192, "{case}: {allocated} for {data}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn tar_reads_any_sparse_file(disk in sparse_disk(1 << 20), unit in prop_oneof![Just(512_usize), Just(4096)]) {
        let directory = tempfile::tempdir().unwrap();
        let content = disk.bytes();
        let parts = parts_of(&content, unit);
        if extract(&sparse_file("a", &content, &parts), directory.path()) {
            prop_assert!(std::fs::read(directory.path().join("a")).unwrap() == content);
        }
    }

    #[test]
    fn snap_decodes_any_bytes(
        disk in sparse_disk(1 << 18),
        piece in 1000_usize..200_000,
    ) {
        let bytes = disk.bytes();
        let mut encoder = Encoder::default();
        let mut stream = IDENTIFIER.to_vec();
        for piece in bytes.chunks(piece) {
            encoder.encode(piece, &mut stream);
        }
        prop_assert!(unwrapped(&stream) == bytes);
    }
}
