//! The same streams through zlib-rs: what one of the two takes or refuses, the other has to take or refuse.

use flate2::{Decompress, FlushDecompress, Status};
use proptest::prelude::*;
use testkit::Random;

use super::Inflate;
use super::encoders::{libdeflate, zlib_deflate};

#[derive(Debug, PartialEq)]
enum Outcome {
    /// What came out, and how many bytes of the input it took.
    End(Vec<u8>, usize),
    Truncated,
    Invalid,
}

/// Our decoder, with so many bytes of input and of output at a time.
fn ours(mut input: &[u8], step: usize, space: usize) -> Outcome {
    let (mut inflate, mut content, mut used) = (Inflate::new(), Vec::new(), 0);
    let mut out = vec![0; space];
    loop {
        let piece = &input[..input.len().min(step)];
        let Ok(progress) = inflate.inflate(piece, &mut out) else { return Outcome::Invalid };
        content.extend_from_slice(&out[..progress.decoded]);
        used += progress.consumed;
        input = &input[progress.consumed..];
        if let Some(rest) = inflate.rest() {
            return Outcome::End(content, used - rest.len());
        }
        if progress.decoded < space && input.is_empty() {
            return Outcome::Truncated;
        }
        assert!(progress.decoded > 0 || progress.consumed > 0, "no progress");
    }
}

fn zlib(input: &[u8]) -> Outcome {
    let (mut inflate, mut content) = (Decompress::new(false), Vec::new());
    let mut out = vec![0; 1 << 16];
    loop {
        let (used, decoded) = (inflate.total_in() as usize, inflate.total_out());
        let Ok(status) = inflate.decompress(&input[used..], &mut out, FlushDecompress::None) else {
            return Outcome::Invalid;
        };
        let n = (inflate.total_out() - decoded) as usize;
        content.extend_from_slice(&out[..n]);
        match status {
            Status::StreamEnd => return Outcome::End(content, inflate.total_in() as usize),
            _ if n == 0 => return Outcome::Truncated,
            _ => (),
        }
    }
}

/// Text, noise, runs, and repetitions at every distance.
fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    let mut random = Random::new(seed);
    let mut next = |bound: usize| random.below(bound as u64) as usize;
    while bytes.len() < len {
        let run = 1 + next(700);
        match next(5) {
            0 => bytes.resize(bytes.len() + run, next(256) as u8),
            1 => bytes.extend((0..run).map(|_| next(256) as u8)),
            2 => bytes.extend((0..run).map(|_| b"etaoin shrdlu\n"[next(14)])),
            _ if bytes.is_empty() => (),
            kind => {
                let farthest = bytes.len().min(if kind == 3 { 40 } else { 32768 });
                let distance = 1 + next(farthest);
                for _ in 0..run {
                    bytes.push(bytes[bytes.len() - distance]);
                }
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// A stream bit by bit, each number with its count of bits.
fn bits(numbers: &[(u64, u32)]) -> Vec<u8> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    for (number, len) in numbers {
        for bit in 0..*len {
            if count % 8 == 0 {
                bytes.push(0);
            }
            *bytes.last_mut().unwrap() |= ((number >> bit & 1) as u8) << (count % 8);
            count += 1;
        }
    }
    bytes
}

#[test]
fn streams_of_every_level_come_back_in_any_pieces() {
    for len in [0, 1, 2, 300, 5000, 70_000, 400_000] {
        let content = content(len, len as u64);
        let streams = (0..=9)
            .map(|level| zlib_deflate(&content, level))
            .chain([0, 1, 6, 12].map(|level| libdeflate(&content, level)));
        for stream in streams {
            for (step, space) in
                [(usize::MAX, 1 << 20), (1, 1 << 20), (usize::MAX, 1), (300, 333), (70_000, 33_000)]
            {
                let expected = Outcome::End(content.clone(), stream.len());
                assert!(ours(&stream, step, space) == expected, "{len}, {step}, {space}");
            }
        }
    }
}

#[test]
fn bytes_behind_the_stream_are_left() {
    let content = content(3000, 1);
    let stream = libdeflate(&content, 6);
    let followed = [&stream[..], &[0xff; 40]].concat();
    for step in [1, 7, 1000, usize::MAX] {
        assert_eq!(ours(&followed, step, 4096), Outcome::End(content.clone(), stream.len()));
    }
}

#[test]
fn a_cut_stream_lacks_input_and_nothing_else() {
    let stream = zlib_deflate(&content(3000, 2), 6);
    for cut in 0..stream.len() {
        assert_eq!(ours(&stream[..cut], usize::MAX, 1 << 16), Outcome::Truncated, "{cut}");
    }
}

#[test]
fn flipped_bit_has_the_same_result_as_in_zlib() {
    for stream in [
        zlib_deflate(&content(900, 3), 9),
        libdeflate(&content(60, 4), 6),
        zlib_deflate(&content(900, 5), 0),
    ] {
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ours(&flipped, usize::MAX, 1 << 16), zlib(&flipped), "bit {bit}");
            assert_eq!(ours(&flipped, 3, 100), zlib(&flipped), "bit {bit}");
        }
    }
}

#[test]
fn forbidden_streams_are_rejected() {
    let fixed = (3, 3); // the last block, with fixed codes
    let forbidden = [
        ("a reserved block type", bits(&[(7, 3)])),
        (
            "a stored length that contradicts itself",
            bits(&[(1, 3), (0, 5), (0x1234, 16), (0x1234, 16)]),
        ),
        ("287 literal codes", bits(&[(5, 3), (30, 5), (0, 5), (0, 4), (0, 64)])),
        ("31 distance codes", bits(&[(5, 3), (0, 5), (30, 5), (0, 4), (0, 64)])),
        (
            "a code for code lengths of no symbol",
            bits(&[
                (5, 3),
                (0, 5),
                (0, 5),
                (0, 4),
                (0, 12),
                (0, 64),
                (0, 64),
                (0, 64),
                (0, 64),
                (0, 64),
            ]),
        ),
        ("too many codes", bits(&[(5, 3), (0, 5), (0, 5), (0, 4), (0o1111, 12), (0, 64)])),
        ("a repetition of nothing", bits(&[(5, 3), (0, 5), (0, 5), (0, 4), (0o0011, 12), (0, 64)])),
        // The length 3 is symbol 257: its code is 0000001, written from the highest bit.
        ("a distance before the beginning", bits(&[fixed, (0b100_0000, 7), (0, 5), (0, 64)])),
        ("the length symbol 286", bits(&[fixed, (0b0110_0011, 8), (0, 64)])),
        (
            "the distance symbol 30",
            bits(&[fixed, (0b0000_1100, 8), (0b100_0000, 7), (0b01111, 5), (0, 64)]),
        ),
    ];
    for (case, stream) in forbidden {
        assert_eq!(ours(&stream, usize::MAX, 1 << 16), Outcome::Invalid, "{case}");
        assert_eq!(ours(&stream, 1, 10), Outcome::Invalid, "{case}");
        assert_eq!(zlib(&stream), Outcome::Invalid, "{case}, by zlib");
    }
}

proptest! {
    #[test]
    fn arbitrary_content_comes_back(
        seed: u64,
        len in 0_usize..100_000,
        level in 0_u32..10,
        step in 1_usize..5000,
        space in 1_usize..70_000,
    ) {
        let content = content(len, seed);
        let stream = zlib_deflate(&content, level);
        prop_assert!(ours(&stream, step, space) == Outcome::End(content, stream.len()));
    }

    #[test]
    fn arbitrary_bytes_have_the_same_result_as_in_zlib(
        start in prop::collection::vec(any::<u8>(), 0..400),
        step in 1_usize..50,
    ) {
        for dynamic in [0_u8, 4] {
            // Random bytes seldom get far; with a dynamic block in front they get to the codes at least.
            let stream: Vec<u8> = start.iter().enumerate().map(|(at, byte)| if at == 0 { byte & !6 | dynamic } else { *byte }).collect();
            prop_assert_eq!(ours(&stream, usize::MAX, 1 << 16), zlib(&stream));
            prop_assert_eq!(ours(&stream, step, 300), zlib(&stream));
        }
    }

    #[test]
    fn damaged_streams_have_the_same_result_as_in_zlib(
        seed: u64,
        level in 1_u32..10,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = zlib_deflate(&content(20_000, seed), level);
        for (at, byte) in changes {
            *at.get_mut(&mut stream) = byte;
        }
        prop_assert_eq!(ours(&stream, usize::MAX, 1 << 20), zlib(&stream));
        prop_assert_eq!(ours(&stream, 1000, 1000), zlib(&stream));
    }
}
