//! Files with holes, in every dialect that the system's `tar` writes.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use formats::Error;
use formats::tar::Archive;
use testkit::{arguments, pattern, require_tool};

use crate::{end, member, seal};

/// A file of `size` bytes with data of 4096 bytes at these places.
fn sparse(path: &Path, size: u64, places: &[u64]) -> Vec<u8> {
    let file = std::fs::File::create(path).unwrap();
    let mut bytes = vec![0; size as usize];
    for at in places {
        bytes[*at as usize..][..4096].copy_from_slice(&pattern(4096));
        file.write_all_at(&pattern(4096), *at).unwrap();
    }
    file.set_len(size).unwrap();
    bytes
}

#[test]
fn every_sparse_format_decodes_to_the_original_file() {
    let Some(tar) = require_tool("tar") else { return };
    let directory = tempfile::tempdir().unwrap();
    let many: Vec<u64> = (0..100).map(|n| n * 65_536).collect();
    let files: [(&str, u64, &[u64]); 5] = [
        ("nothing", 1 << 20, &[]),
        ("begin", 1 << 20, &[0]),
        ("end", (1 << 20) + 4096, &[1 << 20]),
        ("some", 1_000_000, &[8192, 65_536, 524_288]),
        ("many", 8 << 20, &many), // more than a header and four blocks hold
    ];
    let files = files
        .map(|(name, size, places)| (name, sparse(&directory.path().join(name), size, places)));
    for dialect in [
        &["--format=gnu"][..],
        &["--format=oldgnu"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let mut options: Vec<_> = dialect.iter().map(std::ffi::OsString::from).collect();
        options.extend(arguments!["-c", "-S", "--hole-detection=raw", "-C", directory.path()]);
        options.extend(files.iter().map(|(name, _)| name.into()));
        let bytes = tar.run(options);
        assert!(bytes.len() < 2 << 20, "{dialect:?}: holes are in the archive");
        let mut archive = Archive::with_holes(&bytes[..]);
        for (name, expected) in &files {
            let entry = archive.next_entry().unwrap().unwrap();
            assert_eq!(entry.path, name.as_bytes(), "{dialect:?}");
            assert_eq!(entry.size, expected.len() as u64, "{dialect:?} {name}");
            let mut content = Vec::new();
            archive.read_to_end(&mut content).unwrap();
            assert!(content == *expected, "{dialect:?} {name}");
        }
        assert_eq!(archive.next_entry().unwrap(), None, "{dialect:?}");
        // The same, passed over.
        let mut archive = Archive::with_holes(&bytes[..]);
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry().unwrap() {
            archive.skip_hole();
            names.push(entry.path);
        }
        assert_eq!(names.len(), files.len(), "{dialect:?}");
        assert!(Archive::new(&bytes[..]).next_entry().is_err(), "sparse files are optional");
    }
}

/// An old header with pieces and a size of the file, of which `stored` bytes follow.
fn old(pieces: &[(u64, u64)], size: u64, stored: usize) -> Vec<u8> {
    let mut bytes = member("a", b'S', &vec![7; stored]);
    bytes[257..265].copy_from_slice(b"ustar  \0");
    for (index, (at, len)) in pieces.iter().enumerate() {
        let piece = format!("{at:011o}\0{len:011o}\0");
        bytes[386 + 24 * index..][..24].copy_from_slice(piece.as_bytes());
    }
    bytes[483..495].copy_from_slice(format!("{size:011o}\0").as_bytes());
    seal(&mut bytes);
    bytes
}

#[test]
fn holes_cost_nothing_and_are_passed_over() {
    let size = 4 << 30;
    let bytes = [old(&[(1 << 30, 512)], size, 512), end()].concat();
    let mut archive = Archive::with_holes(&bytes[..]);
    assert_eq!(archive.next_entry().unwrap().unwrap().size, size);
    assert_eq!(archive.skip_hole(), 1 << 30);
    assert_eq!(archive.skip_hole(), 0);
    archive.read_exact(&mut [0; 512]).unwrap();
    let left = archive.left();
    assert_eq!(left, size - (1 << 30) - 512);
    assert_eq!(archive.skip_hole(), left);
    assert_eq!(archive.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn impossible_maps_are_refused() {
    let pax = |records: &str, content: &[u8]| {
        [member("p", b'x', records.as_bytes()), member("a", b'0', content), end()].concat()
    };
    let size = "26 GNU.sparse.realsize=99\n";
    let major = "22 GNU.sparse.major=1\n";
    let map = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(512, 0);
        pax(&[major, size].concat(), &bytes)
    };
    let pieces = "the pieces of a file are impossible";
    let malformed = "the map of a file with holes is malformed";
    let table: [(&str, Vec<u8>, &str); 12] = [
        ("pieces that overlap", old(&[(0, 512), (511, 512)], 2048, 1024), pieces),
        ("pieces out of order", old(&[(512, 512), (0, 512)], 2048, 1024), pieces),
        ("a piece behind the end", old(&[(0, 513)], 512, 513), pieces),
        ("pieces of more than is there", old(&[(0, 512)], 2048, 511), pieces),
        ("pieces of less than is there", old(&[(0, 512)], 2048, 513), pieces),
        ("no pieces in records", pax("22 GNU.sparse.size=99\n", b"x"), pieces),
        ("half a piece", pax("20 GNU.sparse.map=1\n", b"x"), "a pax record is malformed"),
        (
            "a length without its place",
            pax("25 GNU.sparse.numbytes=1\n", b"x"),
            "a pax record is malformed",
        ),
        ("a map without content", pax(&[major, size].concat(), b"1\n"), malformed),
        ("a map with letters", map("1\nx\n1\n"), malformed),
        ("a map with empty lines", map("1\n\n1\n"), malformed),
        ("an endless map", map("99999999\n"), "a file has too many pieces"),
    ];
    for (case, bytes, expected) in table {
        let error = Archive::with_holes(&bytes[..]).next_entry().unwrap_err();
        let refused = |error: io::Error| error.downcast::<Error>().unwrap().to_string();
        let message = refused(error);
        assert!(message.ends_with(expected), "{case}: {message}");
    }
}
