//! Streams that are cut, flipped, or made to harm.

use formats::Error;
use formats::decompress::{Limits, reader};
use formats::sniff::Compression::{self, Bzip2, Gzip, Lz4 as Lz4Frames, Xz, Zstd};
use liblzma::stream::Check;
use proptest::prelude::*;

use crate::fixtures::*;

/// Small streams with every feature of their format.
fn samples() -> Vec<(Compression, Vec<u8>)> {
    let content = disk(3000);
    let xz = xz_blocks(&content, 1200, Check::Crc64);
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    vec![
        (Gzip, [compress(Gzip, &content), compress(Gzip, b"more")].concat()),
        (Gzip, bgzf(&content)),
        (Xz, [&xz[..], &[0; 4], &compress(Xz, b"more")].concat()),
        (Xz, xz_blocks(&content, 2000, Check::Sha256)),
        (Zstd, [&zstd_streamed(&content), &skippable[..], &zstd_streamed(b"more")].concat()),
        (Zstd, [zstd_streamed(&content), compress(Zstd, b"more")].concat()),
        (Bzip2, [compress(Bzip2, &content), compress(Bzip2, b"more")].concat()),
        (Lz4Frames, [Lz4::default().frame(&content), Lz4::default().frame(b"more")].concat()),
        (Lz4Frames, [&checked_lz4(&content)[..], &skippable[..], &checked_lz4(b"more")].concat()),
    ]
}

fn checked_lz4(content: &[u8]) -> Vec<u8> {
    Lz4 { block_checksums: true, content_len: Some(content.len() as u64) }.frame(content)
}

fn decode_both_ways(kind: Compression, stream: &[u8]) -> [Result<Vec<u8>, Error>; 2] {
    let serial = decode(kind, stream).map_err(cause);
    let split = decode_split(kind, stream, Limits::default()).map_err(cause);
    [serial, split.map(|(content, ..)| content)]
}

#[test]
fn a_stream_cut_anywhere_is_refused() {
    for (kind, stream) in samples() {
        let whole = decode(kind, &stream).unwrap();
        for cut in 0..stream.len() {
            for outcome in decode_both_ways(kind, &stream[..cut]) {
                match outcome {
                    Err(Error::Empty { .. }) => assert_eq!(cut, 0),
                    Err(Error::Truncated { at, .. }) => assert_eq!(at, cut as u64, "{kind}"),
                    Err(other) => panic!("{kind} cut at {cut}: {other}"),
                    // Between two members, streams or frames nothing shows that more follows.
                    Ok(content) => {
                        assert!(
                            content.len() < whole.len() || content == whole,
                            "{kind} cut at {cut}"
                        );
                        assert!(whole.starts_with(&content));
                        let rest = decode(kind, &stream[cut..]);
                        assert!(rest.is_ok() || kind != Gzip, "{kind} cut at {cut}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_or_does_not_matter() {
    for (kind, stream) in samples() {
        let whole = decode(kind, &stream).unwrap();
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A name, a time, a skippable frame do not matter; the rest is covered by checksums, but for the last frame,
            // which has none.
            let covered = kind != Zstd || bit / 8 < stream.len() - 13;
            for content in decode_both_ways(kind, &flipped).into_iter().flatten() {
                assert!(content == whole || !covered, "{kind}, bit {bit}");
            }
        }
    }
}

#[test]
fn other_bytes_behind_a_stream_are_refused() {
    for kind in KINDS {
        let stream = compress(kind, &disk(1000));
        for garbage in [&b"\x01"[..], b"garbage", b"\0\0\0\0garbage", &[0xff; 2000]] {
            let [serial, split] = decode_both_ways(kind, &[&stream[..], garbage].concat());
            for outcome in [serial, split] {
                assert!(
                    matches!(outcome, Err(Error::TrailingBytes { .. })),
                    "{kind}, {garbage:?}: {outcome:?}"
                );
            }
        }
    }
    let odd_padding = [&compress(Xz, b"x")[..], &[0; 3]].concat();
    assert!(decode(Xz, &odd_padding).is_err());
}

#[test]
fn an_index_of_other_blocks_is_refused() {
    let content = disk(9000);
    let [a, b] = [3000, 4500].map(|block| xz_blocks(&content, block, Check::Crc32));
    // The footer ends with its size of the index in units of four bytes, less one, six bytes before the end.
    let index_len = |stream: &[u8]| {
        let at = stream.len() - 8;
        4 * (1 + u32::from_le_bytes(stream[at..at + 4].try_into().unwrap()) as usize)
    };
    let blocks_of_a = &a[..a.len() - 12 - index_len(&a)];
    let index_of_b = &b[b.len() - 12 - index_len(&b)..];
    for outcome in decode_both_ways(Xz, &[blocks_of_a, index_of_b].concat()) {
        assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{outcome:?}");
    }
}

#[test]
fn too_large_a_window_is_refused_with_both_numbers() {
    let limits = Limits { window_max: 1 << 20, ..Limits::default() };
    let content = disk(3 << 20);
    let xz = run("xz", &["-c", "--lzma2=preset=0,dict=4MiB"], &content);
    let zstd = zstd::bulk::compress(&content, 19).unwrap();
    for (kind, stream, window) in [(Xz, xz, 4 << 20), (Zstd, Some(zstd), 3 << 20)] {
        let Some(stream) = stream else { continue };
        let serial = read_by(&mut reader(kind, Box::new(&stream[..]), limits), 4096).map(drop);
        let split = decode_split(kind, &stream, limits).map(drop);
        for outcome in [serial, split] {
            match cause(outcome.unwrap_err()) {
                Error::WindowTooLarge { needed, allowed, .. } => {
                    assert_eq!((needed, allowed), (window, 1 << 20), "{kind}");
                }
                other => panic!("{kind}: {other}"),
            }
        }
    }
}

#[test]
fn a_dictionary_of_four_gibibytes_is_refused() {
    // A block header with flags 0, LZMA2, one byte of properties: 40 requests 4 GiB less one byte.
    let fields = [2, 0, 0x21, 1, 40, 0, 0, 0];
    let mut stream = compress(Xz, b"")[..12].to_vec();
    stream.extend(fields);
    stream.extend(crc32fast::hash(&fields).to_le_bytes());
    match cause(decode(Xz, &stream).unwrap_err()) {
        Error::WindowTooLarge { needed, allowed, .. } => {
            assert_eq!((needed, allowed), (u64::from(u32::MAX), 1 << 27));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn part_of_another_length_than_announced_is_refused() {
    let honest = bgzf(b"four");
    let isize_at = 18 + (honest.len() - 28 - 18) - 4;
    for lie in [0_u32, 3, 5, 1 << 20] {
        let mut stream = honest.clone();
        stream[isize_at..isize_at + 4].copy_from_slice(&lie.to_le_bytes());
        assert!(decode_split(Gzip, &stream, Limits::default()).is_err(), "{lie}");
    }
    let zstd = compress(Zstd, &[7; 1000]); // a header of magic, descriptor, two bytes of length
    for lie in [0_u16, 743, 745] {
        let mut stream = zstd.clone();
        stream[5..7].copy_from_slice(&lie.to_le_bytes());
        for outcome in decode_both_ways(Zstd, &stream) {
            assert!(outcome.is_err(), "{lie}");
        }
    }
}

#[test]
fn lz4_frame_of_another_length_than_announced_is_refused() {
    for lie in [0, 999, 1001, u64::MAX] {
        let frame = Lz4 { content_len: Some(lie), ..Lz4::default() }.frame(&disk(1000));
        for outcome in decode_both_ways(Lz4Frames, &frame) {
            assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{lie}: {outcome:?}");
        }
    }
    let honest = Lz4::default().frame(&disk(1000));
    let header_len = 7;
    // 64 KiB and a byte, plain and compressed, where 64 KiB are allowed; the bytes are not even requested.
    for len in [0x0001_0001_u32, 0x8001_0001, 0x7fff_ffff, 0xffff_ffff] {
        let frame = [&honest[..header_len], &len.to_le_bytes()].concat();
        let refused = decode(Lz4Frames, &frame).map_err(cause).unwrap_err();
        assert!(matches!(refused, Error::Corrupt { .. }), "{len:x}: {refused}");
    }
    // A block of a few bytes that decodes to more than its frame allows.
    let bomb = lz4_flex::block::compress(&vec![0; 65 << 10]);
    let len = (bomb.len() as u32).to_le_bytes();
    let refused = decode(Lz4Frames, &[&honest[..header_len], &len, &bomb].concat());
    assert!(matches!(refused.map_err(cause), Err(Error::Corrupt { .. })));
}

#[test]
fn an_lz4_frame_with_a_dictionary_is_refused() {
    let described = [0b0110_0001, 4 << 4, 1, 0, 0, 0];
    let checksum = (twox_hash::XxHash32::oneshot(0, &described) >> 8) as u8;
    let frame = [&b"\x04\x22\x4d\x18"[..], &described, &[checksum], &[0; 4]].concat();
    let refused = decode(Lz4Frames, &frame).map_err(cause).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { feature: "a dictionary", .. }), "{refused}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_behind_a_magic_are_refused_or_decoded(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        from in 0_usize..40,
    ) {
        for (kind, stream) in samples() {
            let start = &stream[..from.min(stream.len())];
            for outcome in decode_both_ways(kind, &[start, &bytes].concat()) {
                prop_assert!(outcome.map_or(0, |content| content.len()) < 1 << 20);
            }
        }
    }
}
