//! Parts that are decoded apart are the same as the whole.

use formats::Error;
use formats::decompress::Limits;
use formats::sniff::Compression::{self, Gzip, Xz, Zstd};
use formats::units::{Part, Splitter, worth_splitting};
use liblzma::stream::Check;

use crate::fixtures::*;

/// Units and inline parts of a stream, whose content is checked.
fn parts(kind: Compression, stream: &[u8], content: &[u8], unit_max: usize) -> (usize, usize) {
    let limits = Limits { unit_max, ..Limits::default() };
    let (split, units, inline) = decode_split(kind, stream, limits).unwrap();
    assert!(split == content, "{kind}");
    (units, inline)
}

#[test]
fn blocks_frames_and_bgzf_members_become_units() {
    let content = disk(4 << 20);
    let frames = |stream: fn(&[u8]) -> Vec<u8>, len| -> Vec<u8> {
        content.chunks(len).flat_map(stream).collect()
    };
    let sized = |content: &[u8]| compress(Zstd, content);
    let large = 16 << 20;

    assert_eq!(parts(Xz, &xz_blocks(&content, 1 << 20, Check::Crc64), &content, large), (4, 0));
    assert_eq!(parts(Xz, &compress(Xz, &content), &content, large), (1, 0));
    assert_eq!(parts(Zstd, &frames(sized, 1 << 20), &content, large), (4, 0));
    assert_eq!(parts(Zstd, &frames(sized, 1 << 16), &content, large), (4, 0));
    assert_eq!(parts(Zstd, &frames(zstd_streamed, 1 << 20), &content, large), (0, 4));
    let (units, inline) = parts(Gzip, &bgzf(&content), &content, large);
    assert!(inline == 0 && (4..=5).contains(&units), "{units} units, {inline} inline");
    assert_eq!(parts(Gzip, &compress(Gzip, &content), &content, large), (0, 1));
}

#[test]
fn parts_that_are_too_large_are_decoded_in_place() {
    let content = disk(4 << 20);
    for unit_max in [1, 100, 70_000, 200_000] {
        for stream in [xz_blocks(&content, 1 << 20, Check::Crc64), compress(Xz, &content)] {
            let (_, inline) = parts(Xz, &stream, &content, unit_max);
            assert!(inline > 0);
        }
        let frames: Vec<u8> =
            content.chunks(1 << 20).flat_map(|part| compress(Zstd, part)).collect();
        let (_, inline) = parts(Zstd, &frames, &content, unit_max);
        assert!(inline > 0);
        parts(Gzip, &bgzf(&content), &content, unit_max);
    }
}

#[test]
fn units_stay_within_their_bounds() {
    let content = disk(3 << 20);
    let unit_max = 300_000;
    let frames = content.chunks(1 << 18).flat_map(|part| compress(Zstd, part)).collect();
    let xz = xz_blocks(&content, 1 << 20, Check::Crc32);
    for (kind, stream) in [(Zstd, frames), (Gzip, bgzf(&content)), (Xz, xz)] {
        let mut input = &stream[..];
        let mut splitter = Splitter::new(kind, Limits { unit_max, ..Limits::default() });
        while let Some(part) = splitter.next(&mut input).unwrap() {
            match part {
                Part::Unit(unit) => assert!(unit.compressed_len() <= unit_max + 12, "{kind}"),
                Part::Inline(mut part) => drop(read_by(&mut part, 1 << 20).unwrap()),
            }
        }
    }
}

#[test]
fn kinds_of_parts_may_alternate() {
    let content = disk(600_000);
    let (a, b) = content.split_at(250_000);
    let gzip = [bgzf(a), compress(Gzip, b), bgzf(a), vec![0; 100]].concat();
    assert_eq!(parts(Gzip, &gzip, &[a, b, a].concat(), 1 << 20), (2, 1));
    let zstd = [compress(Zstd, a), zstd_streamed(b), compress(Zstd, a)].concat();
    assert_eq!(parts(Zstd, &zstd, &[a, b, a].concat(), 1 << 20), (2, 1));
    let xz = [xz_blocks(a, 100_000, Check::Crc64), vec![0; 4], compress(Xz, b)].concat();
    assert_eq!(parts(Xz, &xz, &content, 1 << 20), (4, 0));
}

#[test]
fn a_partly_read_inline_part_is_skipped() {
    let content = disk(300_000);
    let stream = compress(Gzip, &content);
    let (mut input, mut seen) = (&stream[..], Vec::new());
    let mut splitter = Splitter::new(Gzip, Limits::default());
    let mut visits = 0;
    while let Some(part) = splitter.next(&mut input).unwrap() {
        let Part::Inline(mut part) = part else { panic!("a plain member is no unit") };
        let mut buffer = [0; 10_000];
        let n = std::io::Read::read(&mut part, &mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..n]);
        visits += 1;
    }
    assert!(seen == content && visits > 30);
}

#[test]
fn an_error_in_a_unit_contains_its_stream_offset() {
    let content = disk(4 << 20);
    let frames = content.chunks(1 << 20).flat_map(zstd_checked).collect();
    let xz = xz_blocks(&content, 1 << 20, Check::Crc64);
    for (kind, mut stream) in [(Zstd, frames), (Xz, xz), (Gzip, bgzf(&content))] {
        let damaged = stream.len() * 7 / 8;
        stream[damaged..damaged + 8].fill(0x55);
        let outcome = decode_split(kind, &stream, Limits::default());
        match cause(outcome.map(drop).unwrap_err()) {
            Error::Corrupt { at, .. } => {
                assert!(
                    at as usize > stream.len() / 2 && at as usize <= stream.len(),
                    "{kind}: {at}"
                );
            }
            other => panic!("{kind}: {other}"),
        }
    }
}

#[test]
fn only_streams_of_several_parts_are_worth_splitting() {
    let content = disk(2 << 20);
    let table = [
        ("blocks with lengths", Xz, xz_blocks(&content, 1 << 20, Check::Crc64), true),
        ("one endless block", Xz, compress(Xz, &content), false),
        ("a short block", Xz, compress(Xz, &content[..10_000]), true),
        ("a frame with its length", Zstd, compress(Zstd, &content), true),
        ("a frame without", Zstd, zstd_streamed(&content), false),
        ("members of bgzip", Gzip, bgzf(&content), true),
        ("a member", Gzip, compress(Gzip, &content), false),
        ("nothing", Gzip, Vec::new(), false),
        ("noise", Xz, disk(1000), false),
    ];
    for (case, kind, stream, expected) in table {
        let head = &stream[..stream.len().min(100_000)];
        assert_eq!(worth_splitting(kind, head, Limits::default()), expected, "{case}");
    }
}
