//! tar archives as the system's `tar` writes them, and damaged ones.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod holes;

use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;

use formats::Error;
use formats::tar::{Archive, Entry, Kind, is_tar};
use proptest::prelude::*;
use testkit::{Random, arguments, pattern, require_tool};

/// All entries and their content.
fn read(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Error> {
    let refused = |error: io::Error| error.downcast::<Error>().expect("a reason to refuse");
    let mut archive = Archive::new(bytes);
    let mut entries = Vec::new();
    while let Some(entry) = archive.next_entry().map_err(refused)? {
        let mut content = Vec::new();
        archive.read_to_end(&mut content).map_err(refused)?;
        assert_eq!(content.len() as u64, entry.size);
        entries.push((entry, content));
    }
    Ok(entries)
}

/// A header made by hand, and its content.
fn member(path: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block[..512].iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn end() -> Vec<u8> {
    vec![0; 1024]
}

#[test]
fn archives_of_every_format_decode_to_the_original_directory() {
    let Some(tar) = require_tool("tar") else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let long = format!("disk/{}/{}", "folder".repeat(20), "name".repeat(20));
    std::fs::create_dir_all(at(&long).parent().unwrap()).unwrap();
    std::fs::write(at("disk/image"), pattern(100_000)).unwrap();
    std::fs::set_permissions(at("disk/image"), PermissionsExt::from_mode(0o4751)).unwrap();
    std::fs::write(at("disk/empty"), b"").unwrap();
    std::fs::write(at(&long), pattern(513)).unwrap();
    std::os::unix::fs::symlink("../elsewhere", at("disk/soft")).unwrap();
    std::fs::hard_link(at("disk/image"), at("disk/twin")).unwrap();
    let names = [&*long, "disk/empty", "disk/image", "disk/soft", "disk/twin"];
    for format in ["gnu", "oldgnu", "pax", "posix", "ustar", "v7"] {
        let short = if format == "v7" { &names[1..] } else { &names[..] };
        let options =
            arguments!["-c", "--no-recursion", "--format", format, "-C", directory.path()];
        let bytes = tar.run(options.into_iter().chain(short.iter().map(Into::into)));
        assert!(is_tar(&bytes), "{format}");
        let entries = read(&bytes).unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|(entry, _)| String::from_utf8(entry.path.clone()).unwrap())
            .collect();
        assert_eq!(found, short, "{format}");
        let kinds: Vec<_> = entries.iter().rev().map(|(entry, _)| entry.kind.clone()).collect();
        assert_eq!(kinds[0], Kind::HardLink(b"disk/image".to_vec()), "{format}");
        assert_eq!(kinds[1], Kind::Symlink(b"../elsewhere".to_vec()), "{format}");
        assert_eq!(kinds[2], Kind::Regular, "{format}");
        let image = entries.iter().find(|(entry, _)| entry.path == b"disk/image").unwrap();
        assert_eq!((image.0.mode, &image.1), (0o4751, &pattern(100_000)), "{format}");
        if format != "v7" {
            assert_eq!(entries[0].1, pattern(513), "{format}");
        }
    }
    let options = arguments!["-c", "--no-recursion", "-C", directory.path(), "disk"];
    let entries = read(&tar.run(options)).unwrap();
    assert_eq!((&*entries[0].0.path, &entries[0].0.kind), (&b"disk/"[..], &Kind::Directory));
}

#[test]
fn content_that_is_not_wanted_is_skipped() {
    let bytes = [member("a", b'0', &pattern(70_000)), member("b", b'0', b"two"), end()].concat();
    let mut archive = Archive::new(&bytes[..]);
    assert_eq!(archive.next_entry().unwrap().unwrap().path, b"a");
    archive.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(archive.left(), 69_990);
    assert_eq!(archive.next_entry().unwrap().unwrap().path, b"b");
    let mut content = String::new();
    archive.read_to_string(&mut content).unwrap();
    assert_eq!(content, "two");
    assert_eq!(archive.next_entry().unwrap(), None);
    assert_eq!(archive.next_entry().unwrap(), None);
    assert_eq!(archive.position(), bytes.len() as u64);
}

#[test]
fn pax_records_replace_header_fields() {
    let records = b"20 path=a long path\n14 linkpath=b\n11 size=12\n19 comment=ignored\n";
    let bytes =
        [member("pax", b'x', records), member("short", b'0', b"twelve bytes")[..].to_vec(), end()];
    let mut bytes = bytes.concat();
    bytes[1024 + 124..1024 + 136].copy_from_slice(b"00000000000\0"); // the record knows better
    seal(&mut bytes[1024..]);
    let entries = read(&bytes).unwrap();
    assert_eq!((&*entries[0].0.path, &*entries[0].1), (&b"a long path"[..], &b"twelve bytes"[..]));
}

#[test]
fn sizes_beyond_octal_digits_are_read() {
    let mut header = member("big", b'0', b"");
    header[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1]);
    seal(&mut header);
    let mut archive = Archive::new(&header[..]);
    assert_eq!(archive.next_entry().unwrap().unwrap().size, 0x10_0000_0001);
}

#[test]
fn the_blocks_of_zeroes_at_the_end_may_be_missing_but_nothing_else() {
    let whole = [member("a", b'0', b"one"), member("b", b'0', &pattern(600))].concat();
    assert_eq!(read(&whole).unwrap().len(), 2);
    assert_eq!(read(&[&whole[..], &[0; 512]].concat()).unwrap().len(), 2);
    assert_eq!(read(b"").unwrap().len(), 0);
    let content_ends = whole.len() - (1024 - 600);
    for end in (1..content_ends).filter(|end| ![512, 1024].contains(end)) {
        let cut = read(&whole[..end]);
        assert!(matches!(cut, Err(Error::Truncated { .. })), "cut at {end}: {cut:?}");
    }
    let lost = [member("pax", b'x', b"10 path=b\n"), end()].concat();
    assert!(matches!(read(&lost), Err(Error::Truncated { .. })));
}

#[test]
fn damaged_archives_are_rejected_with_a_message() {
    let good = member("a", b'0', b"");
    let changed = |at: usize, bytes: &[u8]| {
        let mut block = good.clone();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut block);
        block
    };
    let pax = |records: &str| [member("p", b'x', records.as_bytes()), good.clone()].concat();
    let mut unsealed = good.clone();
    unsealed[0] = b'b';
    let damaged = |because: &str| format!("the tar archive is damaged near byte 0: {because}");
    let malformed = damaged("a pax record is malformed");
    let holes = "the tar archive uses a file with holes, which is not supported".to_owned();
    let huge = [member("L", b'L', &vec![b'x'; (1 << 20) + 1]), good.clone()].concat();
    let table: [(&str, Vec<u8>, String); 15] = [
        ("checksum", unsealed, damaged("the checksum of a header is wrong")),
        ("size", changed(124, b"0000000000x\0"), damaged("a size is not a number")),
        ("negative size", changed(124, &[0xff; 12]), damaged("a size is not a number")),
        (
            "endless size",
            changed(124, &[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            damaged("a size is not a number"),
        ),
        ("mode", changed(100, b"rw-r--r-"), damaged("a mode is not a number")),
        ("sparse", changed(156, b"S"), holes.clone()),
        ("pax sparse", pax("22 GNU.sparse.major=1\n"), holes),
        (
            "volumes",
            changed(156, b"M"),
            "the tar archive uses several volumes, which is not supported".into(),
        ),
        ("record without length", pax("path=b\n"), malformed.clone()),
        ("record too long", pax("99 path=b\n"), malformed.clone()),
        ("record too short", pax("2 path=b\n"), malformed.clone()),
        ("record without end", pax("10 path=bc"), malformed.clone()),
        ("record without key", pax("8 pathb\n"), malformed),
        ("names", huge, damaged("its names are too long")),
        (
            "zeroes first",
            [vec![0; 512], good.clone()].concat(),
            damaged("a block of zeroes is followed by something else"),
        ),
    ];
    for (case, bytes, expected) in table {
        assert_eq!(read(&bytes).unwrap_err().to_string(), expected, "{case}");
    }
    let impossible = pax("28 size=9223372036854775807\n");
    assert!(read(&impossible).unwrap_err().to_string().ends_with("a size is impossible"));
}

proptest! {
    #[test]
    fn arbitrary_damage_never_panics(seed: u64, count in 1..20_u64) {
        let records = b"20 path=a long path\n";
        let mut bytes =
            [member("x", b'x', records), member("a", b'0', b"data"), member("b", b'2', b""), end()]
                .concat();
        let mut random = Random::new(seed);
        for _ in 0..count {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        for header in [0, 1024, 2048] {
            if random.below(2) == 0 {
                seal(&mut bytes[header..]);
            }
        }
        // Huge sizes end with the bytes there are.
        let _ = read(&bytes);
    }
}
