//! What a stream is, seen from its first bytes.

use formats::Error;
use formats::sniff::{Compression, ImageFormat, probe_head};

use crate::fixtures::*;

fn qcow2(len: usize) -> Vec<u8> {
    let mut image = disk(len);
    image[..4].copy_from_slice(b"QFI\xfb");
    image
}

#[test]
fn nested_compressions_are_detected_in_any_order() {
    let image = qcow2(1_500_000);
    for outer in KINDS {
        for inner in KINDS.into_iter().filter(|inner| *inner != outer) {
            let stream = compress(outer, &compress(inner, &image));
            let probed = probe_head(&stream[..stream.len().min(256 << 10)], false).unwrap();
            assert_eq!(probed.compressions, [outer, inner]);
            assert_eq!(probed.image, ImageFormat::Qcow2);
            assert!(probed.image_head.len() >= 512 && image.starts_with(&probed.image_head));
            assert!(probed.window >= 32 << 10);
        }
    }
}

#[test]
fn an_uncompressed_head_is_returned_whole() {
    for image in [disk(1), disk(511), disk(512), qcow2(100_000)] {
        for whole in [false, true] {
            let probed = probe_head(&image, whole).unwrap();
            assert_eq!((probed.compressions.len(), probed.window), (0, 0));
            assert_eq!(probed.image_head, image);
        }
    }
}

#[test]
fn each_compression_is_undone_once() {
    let inner = compress(Compression::Gzip, &disk(5000));
    let probed = probe_head(&compress(Compression::Gzip, &inner), true).unwrap();
    assert_eq!(probed.compressions, [Compression::Gzip]);
    assert_eq!((probed.image, probed.image_head), (ImageFormat::Raw, inner));
}

#[test]
fn an_image_ends_the_detection() {
    let image = [b"QFI\xfb", &compress(Compression::Gzip, b"x")[..]].concat();
    let probed = probe_head(&compress(Compression::Xz, &image), true).unwrap();
    assert_eq!((probed.compressions, probed.image), (vec![Compression::Xz], ImageFormat::Qcow2));
}

#[test]
fn empty_input_is_an_error_at_any_depth() {
    assert!(matches!(probe_head(b"", true), Err(Error::Empty { .. })));
    assert!(matches!(probe_head(b"", false), Err(Error::HeadTooShort { .. })));
    for outer in KINDS {
        let empty = compress(outer, b"");
        assert!(matches!(probe_head(&empty, true), Err(Error::Empty { .. })), "{outer}");
    }
}

#[test]
fn a_broken_stream_behind_a_good_magic_is_never_raw() {
    for kind in KINDS {
        let mut stream = compress(kind, &disk(3000));
        let cut = probe_head(&stream[..stream.len() / 2], true).unwrap_err();
        assert!(matches!(cut, Error::Truncated { .. }), "{kind}: {cut}");
        let magic = probe_head(&stream[..6], true).unwrap_err();
        assert!(matches!(magic, Error::Truncated { .. }), "{kind}: {magic}");
        stream[6..].fill(0xff);
        assert!(probe_head(&stream, true).is_err(), "{kind}");
        assert!(probe_head(&stream, false).is_err(), "{kind}");
    }
}

#[test]
fn a_head_that_ends_early_is_enough_as_soon_as_it_yields_something() {
    for kind in KINDS {
        let image = qcow2(200_000);
        let stream = compress(kind, &image);
        let mut yielded = 0;
        for len in (0..stream.len()).step_by(997).chain([stream.len()]) {
            match probe_head(&stream[..len], false) {
                Ok(probed) if probed.compressions.is_empty() => assert!(len < 6),
                Ok(probed) => {
                    assert!(image.starts_with(&probed.image_head), "{kind}, {len}");
                    assert!(probed.image_head.len() >= yielded, "{kind}, {len}");
                    yielded = probed.image_head.len();
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
        let probed = probe_head(&bomb, true).unwrap();
        assert_eq!(probed.image_head.len(), 1 << 20, "{kind}");
    }
}

#[test]
fn unsupported_formats_are_rejected_by_name_at_any_depth() {
    let zip = [b"PK\x03\x04", &disk(3000)[..]].concat();
    let squashfs = [b"hsqs", &disk(3000)[..]].concat();
    for (image, name) in [(zip, "a zip archive"), (squashfs, "a squashfs file system")] {
        let packed = KINDS.map(|kind| compress(kind, &image));
        for stream in packed.iter().chain([&image]) {
            let refused = probe_head(stream, true).unwrap_err();
            let text = refused.to_string();
            assert!(text.starts_with(&format!("the image is {name}, which is not supp")), "{text}");
            assert!(matches!(refused, Error::Foreign(_)));
        }
    }
}

#[test]
fn unsupported_output_of_common_programs_is_rejected() {
    let content = disk(300_000);
    let programs: [(&str, &[&str], &str); 2] = [
        ("xz", &["--format=lzma", "-c"], "an lzma stream"),
        ("lz4", &["-l", "-c"], "a legacy lz4 stream"),
    ];
    for (program, args, name) in programs {
        let Some(stream) = run(program, args, &content) else { continue };
        let refused = probe_head(&stream, true).unwrap_err().to_string();
        assert!(refused.contains(name), "{program}: {refused}");
    }
}
