//! What a stream is, seen from its first bytes.

use formats::Error;
use formats::sniff::{Compression, ImageFormat, look_through};

use crate::fixtures::*;

fn qcow2(len: usize) -> Vec<u8> {
    let mut image = disk(len);
    image[..4].copy_from_slice(b"QFI\xfb");
    image
}

#[test]
fn nested_compressions_are_looked_through_in_any_order() {
    let image = qcow2(1_500_000);
    for outer in KINDS {
        for inner in KINDS.into_iter().filter(|inner| *inner != outer) {
            let stream = compress(outer, &compress(inner, &image));
            let look = look_through(&stream[..stream.len().min(256 << 10)], false).unwrap();
            assert_eq!(look.compressions, [outer, inner]);
            assert_eq!(look.image, ImageFormat::Qcow2);
            assert!(look.image_head.len() >= 512 && image.starts_with(&look.image_head));
            assert!(look.window >= 32 << 10);
        }
    }
}

#[test]
fn an_uncompressed_head_is_handed_back_whole() {
    for image in [disk(1), disk(511), disk(512), qcow2(100_000)] {
        for whole in [false, true] {
            let look = look_through(&image, whole).unwrap();
            assert_eq!((look.compressions.len(), look.window), (0, 0));
            assert_eq!(look.image_head, image);
        }
    }
}

#[test]
fn each_compression_is_undone_once() {
    let inner = compress(Compression::Gzip, &disk(5000));
    let look = look_through(&compress(Compression::Gzip, &inner), true).unwrap();
    assert_eq!(look.compressions, [Compression::Gzip]);
    assert_eq!((look.image, look.image_head), (ImageFormat::Raw, inner));
}

#[test]
fn an_image_ends_the_search_whatever_it_holds() {
    let image = [b"QFI\xfb", &compress(Compression::Gzip, b"x")[..]].concat();
    let look = look_through(&compress(Compression::Xz, &image), true).unwrap();
    assert_eq!((look.compressions, look.image), (vec![Compression::Xz], ImageFormat::Qcow2));
}

#[test]
fn nothing_is_an_error_at_any_depth() {
    assert!(matches!(look_through(b"", true), Err(Error::Empty { .. })));
    assert!(matches!(look_through(b"", false), Err(Error::HeadTooShort { .. })));
    for outer in KINDS {
        let empty = compress(outer, b"");
        assert!(matches!(look_through(&empty, true), Err(Error::Empty { .. })), "{outer}");
    }
}

#[test]
fn a_broken_stream_behind_a_good_magic_is_never_raw() {
    for kind in KINDS {
        let mut stream = compress(kind, &disk(3000));
        let cut = look_through(&stream[..stream.len() / 2], true).unwrap_err();
        assert!(matches!(cut, Error::Truncated { .. }), "{kind}: {cut}");
        let magic = look_through(&stream[..6], true).unwrap_err();
        assert!(matches!(magic, Error::Truncated { .. }), "{kind}: {magic}");
        stream[6..].fill(0xff);
        assert!(look_through(&stream, true).is_err(), "{kind}");
        assert!(look_through(&stream, false).is_err(), "{kind}");
    }
}

#[test]
fn a_head_that_ends_early_is_enough_as_soon_as_it_yields_something() {
    for kind in KINDS {
        let image = qcow2(200_000);
        let stream = compress(kind, &image);
        let mut yielded = 0;
        for len in (0..stream.len()).step_by(997).chain([stream.len()]) {
            match look_through(&stream[..len], false) {
                Ok(look) if look.compressions.is_empty() => assert!(len < 6),
                Ok(look) => {
                    assert!(image.starts_with(&look.image_head), "{kind}, {len}");
                    assert!(look.image_head.len() >= yielded, "{kind}, {len}");
                    yielded = look.image_head.len();
                }
                Err(Error::HeadTooShort { .. }) => assert_eq!(yielded, 0, "{kind}, {len}"),
                Err(other) => panic!("{kind}, {len}: {other}"),
            }
        }
        assert_eq!(yielded, image.len(), "{kind}");
    }
}

#[test]
fn a_bomb_is_bounded() {
    for kind in KINDS {
        let bomb = compress(kind, &vec![0; 32 << 20]);
        let look = look_through(&bomb, true).unwrap();
        assert_eq!(look.image_head.len(), 1 << 20, "{kind}");
    }
}

#[test]
fn what_is_known_and_not_read_is_refused_by_its_name_at_any_depth() {
    let zip = [b"PK\x03\x04", &disk(3000)[..]].concat();
    let squashfs = [b"hsqs", &disk(3000)[..]].concat();
    for (image, name) in [(zip, "a zip archive"), (squashfs, "a squashfs file system")] {
        let packed = KINDS.map(|kind| compress(kind, &image));
        for stream in packed.iter().chain([&image]) {
            let refused = look_through(stream, true).unwrap_err();
            let text = refused.to_string();
            assert!(text.starts_with(&format!("the image is {name}, which is not supp")), "{text}");
            assert!(matches!(refused, Error::Foreign(_)));
        }
    }
}

#[test]
fn what_the_usual_programs_make_and_nobody_reads_is_refused() {
    let content = disk(300_000);
    let programs: [(&str, &[&str], &str); 2] = [
        ("xz", &["--format=lzma", "-c"], "an lzma stream"),
        ("lz4", &["-l", "-c"], "a legacy lz4 stream"),
    ];
    for (program, args, name) in programs {
        let Some(stream) = run(program, args, &content) else { continue };
        let refused = look_through(&stream, true).unwrap_err().to_string();
        assert!(refused.contains(name), "{program}: {refused}");
    }
}
