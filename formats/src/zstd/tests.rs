//! Streams whose zeroes are not decoded are the content that libzstd decodes.

use std::io::{Read, Write};

use ::zstd::stream::Encoder;
use proptest::prelude::*;
use testkit::short_runs;

use super::*;
use crate::decompress::{ContentReader, Serial};

/// How a stream is compressed.
#[derive(Clone, Copy, Debug)]
struct How {
    level: i32,
    window_log: u32,
    checksum: bool,
    /// The header contains the length.
    sized: bool,
}

const USUAL: How = How { level: 1, window_log: 17, checksum: true, sized: false };

fn compress(content: &[u8], how: How) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), how.level).unwrap();
    encoder.window_log(how.window_log).unwrap();
    encoder.include_checksum(how.checksum).unwrap();
    if how.sized {
        encoder.set_pledged_src_size(Some(content.len() as u64)).unwrap();
    }
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn reader(stream: &[u8]) -> Serial<'_> {
    Serial::new(Compression::Zstd, Box::new(stream), Limits::default())
}

/// The content, read in portions of `space`, and how much of it came as a number of zeroes.
fn decode(stream: &[u8], space: usize) -> io::Result<(Vec<u8>, u64)> {
    let (mut content, mut zeroes) = (Vec::new(), 0);
    let mut out = vec![0xee; space];
    let mut reader = reader(stream);
    loop {
        match reader.read_content(&mut out)? {
            Content::Bytes(0) => return Ok((content, zeroes)),
            Content::Bytes(n) => content.extend_from_slice(&out[..n]),
            Content::Zeroes(n) => {
                content.resize(content.len() + n as usize, 0);
                zeroes += n;
            }
        }
    }
}

fn decode_to_bytes(stream: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    reader(stream).read_to_end(&mut content)?;
    Ok(content)
}

#[test]
fn libzstd_decodes_no_more_zeroes_than_fit_its_window() {
    let data = short_runs(300_000, 1);
    let content = [&data[..], &vec![0; 64 << 20], &data].concat();
    let stream = compress(&content, USUAL);
    let (decoded, zeroes) = decode(&stream, 1 << 20).unwrap();
    assert!(decoded == content && decode_to_bytes(&stream).unwrap() == content);
    assert!(zeroes > 63 << 20, "{zeroes}");

    let mut input = &stream[..];
    let mut ahead = crate::decompress::Ahead::default();
    let wire = &mut Wire::new(&mut ahead, &mut input);
    let mut zstd = Zstd::new(Limits::default(), 0);
    assert!(matches!(zstd.next(wire).unwrap(), Next::Inline));
    let (mut at, mut out) = (0, vec![0; 1 << 20]);
    while at < 60 << 20 {
        at += match zstd.read(wire, &mut out).unwrap() {
            Content::Bytes(n) => n as u64,
            Content::Zeroes(n) => n,
        };
    }
    let decoded = zstd.frame.as_ref().unwrap().decoded_zeroes();
    assert!((1 << 17..1 << 19).contains(&decoded), "{decoded}");
}

#[test]
fn parts_that_zstd_compresses_in_parallel_are_one_run_of_zeroes() {
    // Each begins with a compressed block, even where all is zero: here each is a frame without its end.
    let zeroes = vec![0; 512 << 10];
    let one = compress(&zeroes, How { checksum: false, ..USUAL });
    let (header, blocks) = one.split_at(6);
    // The last block, which is empty, has a header of three bytes.
    let (blocks, last) = blocks.split_at(blocks.len() - 3);
    assert_eq!(last, [1, 0, 0]);
    let stream = [header, &blocks.repeat(100), last].concat();
    let (content, zeroes) = decode(&stream, 1 << 20).unwrap();
    assert_eq!((content.len(), zeroes), (50 << 20, 50 << 20));
    assert!(decode_to_bytes(&stream).unwrap().iter().all(|byte| *byte == 0));
}

/// A frame of 1 KiB blocks with a window of 1 KiB, and a number for its checksum.
fn crafted(blocks: &[(u32, &[u8])]) -> Vec<u8> {
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0];
    for (header, bytes) in blocks {
        stream.extend_from_slice(&header.to_le_bytes()[..3]);
        stream.extend_from_slice(bytes);
    }
    stream
}

const fn repeated(len: u32) -> u32 {
    len << 3 | 1 << 1
}

const LAST: u32 = 1;

#[test]
fn crafted_blocks_are_refused_where_libzstd_refuses_them() {
    let zero = |len| (repeated(len), &[0][..]);
    let end: (u32, &[u8]) = (3 << 3 | LAST, b"end");
    let long: Vec<_> = [zero(1024)].repeat(3000);
    let cases: &[(&str, Vec<(u32, &[u8])>)] = &[
        ("zeroes", [&long[..], &[end]].concat()),
        ("zeroes alone", [&long[..], &[(repeated(1024) | LAST, &[0])]].concat()),
        ("short ones", [&long[..], &[zero(1), zero(0), zero(1023), end]].concat()),
        ("too long a block", [&long[..], &[zero(1025), end]].concat()),
        ("too long a block at the beginning", vec![zero(1025), end]),
        ("a block of a reserved type", [&long[..], &[(3 << 1, &[]), end]].concat()),
        ("other bytes between", [&long[..], &[(repeated(9), &[7])], &long, &[end]].concat()),
        ("empty blocks", [[(0, &[][..])].repeat(100), long.clone(), vec![(LAST, &[])]].concat()),
        ("no last block", long.clone()),
        ("a block without its byte", [&long[..], &[(repeated(1024), &[])]].concat()),
    ];
    for (what, blocks) in cases {
        let stream = crafted(blocks);
        let libzstd = ::zstd::stream::decode_all(&stream[..]);
        for space in [1, 1000, 1 << 20] {
            match (decode(&stream, space), &libzstd) {
                (Ok((content, _)), Ok(expected)) => assert!(content == *expected, "{what}"),
                (Err(_), Err(_)) => (),
                (ours, theirs) => {
                    panic!("{what}: {:?}, libzstd {:?}", ours.map(drop), theirs.as_ref().map(drop))
                }
            }
        }
    }
}

#[test]
fn what_depends_on_zeroes_that_were_not_decoded_is_verified() {
    let content = [&short_runs(100_000, 2)[..], &vec![0; 4 << 20], b"end"].concat();
    let stream = compress(&content, How { sized: true, ..USUAL });
    let message = |stream: &[u8]| decode(stream, 1 << 20).unwrap_err().to_string();
    let mut damaged = stream.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let found = message(&damaged);
    assert!(found.contains("the checksum of a frame does not match its content"), "{found}");
    // Without its last block of zeroes.
    let block = u32::to_le_bytes(repeated(128 << 10));
    let at = stream.windows(4).rposition(|bytes| bytes == [block[0], block[1], block[2], 0]);
    let at = at.expect("a block of zeroes");
    let found = message(&[&stream[..at], &stream[at + 4..]].concat());
    assert!(found.contains("a frame's content is not as long as its header states"), "{found}");
    for cut in [1, 4, 5, 12, 20] {
        let found = message(&stream[..stream.len() - cut]);
        assert!(found.contains("ends too early"), "{cut}: {found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_runs_of_zeroes_between_data_that_repeats(
        seed: u64,
        parts in prop::collection::vec((0_usize..300_000, 0_usize..20, -3_isize..3), 1..8),
        level in 1..13,
        window_log in 10_u32..21,
        checksum: bool,
        sized: bool,
        space in 1_usize..400_000,
    ) {
        // The same data again: matches reach back as far as the window allows.
        let data = short_runs(300_000, seed);
        let mut content = Vec::new();
        for (len, blocks, more) in parts {
            content.extend_from_slice(&data[..len]);
            let zeroes = (blocks << 16).saturating_add_signed(more);
            content.resize(content.len() + zeroes, 0);
        }
        let how = How { level, window_log, checksum, sized };
        let stream = compress(&content, how);
        let space = space.max(content.len() / 500);
        prop_assert!(decode(&stream, space).unwrap().0 == content);
        prop_assert!(decode_to_bytes(&stream).unwrap() == content);
    }
}
