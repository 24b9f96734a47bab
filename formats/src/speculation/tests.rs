//! Chunks decoded with and without knowing what precedes them have to be the same content.

use std::cell::Cell;

use proptest::prelude::*;
use testkit::short_runs;

use super::*;
use crate::inflate::encoders::{libdeflate, zlib_deflate};

/// What a stream of chunks decodes to, and how many bytes follow it.
#[derive(Debug, PartialEq)]
enum Outcome {
    End(Vec<u8>, usize),
    /// Before the end of the stream.
    Truncated(Vec<u8>),
    Damaged,
}

/// Numbers of a run.
#[derive(Default, Debug, PartialEq)]
struct Counts {
    chunks: usize,
    /// Chunks whose speculation came true.
    adopted: usize,
    /// Bits that were decoded in order before these began.
    bits_between: i64,
}

/// How far each chunk is decoded ahead.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    memory_max: usize,
    steps: usize,
    /// Bytes of the next chunk that are known.
    next_max: usize,
}

const PLENTY: Ahead = Ahead { memory_max: 8 << 20, steps: usize::MAX, next_max: 128 << 10 };

impl Ahead {
    fn decode(self, chunk: &Chunk) -> Option<Speculation> {
        let asked = Cell::new(0);
        let is_due = || asked.replace(asked.get() + 1) + 1 >= self.steps;
        Speculation::decode(chunk, SpeculationMemory::new(self.memory_max), is_due).ok()
    }
}

/// Decodes chunks of `chunk_len` with buffers of `space`.
fn decode(stream: &[u8], chunk_len: usize, space: usize, ahead: Ahead) -> (Outcome, Counts) {
    let mut content = Vec::new();
    let mut counts = Counts::default();
    let mut body = BodyDecoder::new(Inflate::new());
    let mut out = vec![0xee; space];
    let mut chunks = stream.chunks(chunk_len).peekable();
    while let Some(bytes) = chunks.next() {
        let next = chunks.peek().copied().unwrap_or_default();
        let chunk = Chunk::new(bytes.to_vec(), &next[..next.len().min(ahead.next_max)]);
        let speculation = ahead.decode(&chunk);
        let begin = 8 * body.used as i64 + body.inflate.next_bit();
        let bits_before = speculation.as_ref().map_or(0, |it| it.block() as i64 - begin);
        let mut decoder = ChunkDecoder::new(&chunk, body, speculation);
        counts.chunks += 1;
        let mut announced = None;
        loop {
            if announced.is_none()
                && let Some(len) = decoder.prepared_len()
            {
                announced = Some((decoder.next_state(), content.len() as u64 + len));
            }
            let was_prepared = decoder.was_prepared();
            let decoded = decoder.decode(&mut out);
            if decoder.was_prepared() && !was_prepared {
                counts.adopted += 1;
                counts.bits_between += bits_before;
            }
            match decoded {
                Err(_) => return (Outcome::Damaged, counts),
                Ok(Decoded::Bytes(n)) => content.extend_from_slice(&out[..n]),
                Ok(Decoded::Zeroes(n)) => content.resize(content.len() + n, 0),
                Ok(Decoded::ChunkEnd) => break,
                Ok(Decoded::BodyEnd) => {
                    let unused = decoder.unused();
                    let rest: usize = chunks.map(<[u8]>::len).sum();
                    let behind = unused.len() + rest - chunk.next_len();
                    assert_eq!(unused, stream[stream.len() - behind..][..unused.len()]);
                    return (Outcome::End(content, behind), counts);
                }
            }
        }
        body = match announced {
            Some((body, len)) => {
                assert_eq!(content.len() as u64, len, "the announced length");
                body
            }
            None => decoder.next_state(),
        };
    }
    (Outcome::Truncated(content), counts)
}

/// The same without speculation and chunks.
fn in_order(stream: &[u8]) -> Outcome {
    let chunk = Chunk::new(stream.to_vec(), &[]);
    let mut decoder = ChunkDecoder::new(&chunk, BodyDecoder::new(Inflate::new()), None);
    let (mut content, mut out) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match decoder.decode(&mut out) {
            Err(_) => return Outcome::Damaged,
            Ok(Decoded::Bytes(n)) => content.extend_from_slice(&out[..n]),
            Ok(Decoded::Zeroes(_)) => unreachable!("nothing is prepared"),
            Ok(Decoded::ChunkEnd) => return Outcome::Truncated(content),
            Ok(Decoded::BodyEnd) => return Outcome::End(content, decoder.unused().len()),
        }
    }
}

#[test]
fn most_chunks_of_a_long_stream_are_decoded_before_what_precedes_them() {
    let content = short_runs(16 << 20, 1);
    for stream in [zlib_deflate(&content, 6), zlib_deflate(&content, 9), libdeflate(&content, 6)] {
        let (outcome, counts) = decode(&stream, 256 << 10, 1 << 20, PLENTY);
        assert!(outcome == Outcome::End(content.clone(), 0));
        assert!(counts.chunks > 10 && counts.adopted + 3 >= counts.chunks, "{counts:?}");
    }
}

#[test]
fn chunks_end_with_a_block_so_that_nothing_is_decoded_between_them() {
    let content = short_runs(16 << 20, 1);
    for stream in [zlib_deflate(&content, 6), libdeflate(&content, 6)] {
        let (outcome, counts) = decode(&stream, 512 << 10, 1 << 20, PLENTY);
        assert!(outcome == Outcome::End(content.clone(), 0));
        assert_eq!(counts.bits_between, 0, "{counts:?}");
        let (_, unknown) = decode(&stream, 512 << 10, 1 << 20, Ahead { next_max: 0, ..PLENTY });
        assert!(unknown.bits_between > 100_000, "{unknown:?}");
    }
}

#[test]
fn stored_blocks_and_blocks_with_fixed_codes_need_no_speculation() {
    let noise: Vec<u8> = short_runs(3 << 20, 2);
    let stored = zlib_deflate(&noise, 0);
    assert!(decode(&stored, 100_000, 1 << 16, PLENTY).0 == Outcome::End(noise, 0));
    let short = b"one two three ".repeat(3);
    let fixed = libdeflate(&short, 1);
    assert_eq!(decode(&fixed, 7, 5, PLENTY).0, Outcome::End(short, 0));
}

#[test]
fn runs_of_zeroes_take_no_memory() {
    let mut content = short_runs(1 << 20, 3);
    content.resize(64 << 20, 0);
    content.extend(b"end");
    let stream = zlib_deflate(&content, 6);
    let half = stream.len() / 2;
    let ahead = Ahead { memory_max: 2 << 20, ..PLENTY };
    let chunk = Chunk::new(stream[half..].to_vec(), &[]);
    let speculation = ahead.decode(&chunk).expect("a block");
    assert!(speculation.content.len() > 60 << 20, "{}", speculation.content.len());
    let (outcome, counts) = decode(&stream, half, 1 << 20, PLENTY);
    assert!(outcome == Outcome::End(content, 0));
    assert!(counts.adopted > 0, "{counts:?}");
}

#[test]
fn a_speculation_stops_at_its_limit_of_memory() {
    let content = vec![7; 64 << 20];
    let stream = zlib_deflate(&[&short_runs(1 << 20, 4)[..], &content].concat(), 6);
    for memory_max in [0, 1, 40_000, 1 << 20] {
        let ahead = Ahead { memory_max, ..PLENTY };
        let chunk = Chunk::new(stream[1000..].to_vec(), &[]);
        let speculation = ahead.decode(&chunk).expect("a block");
        assert!(speculation.content.len() <= 2 * memory_max as u64);
        assert!(matches!(decode(&stream, 1000, 1 << 20, ahead).0, Outcome::End(..)));
    }
}

#[test]
fn a_speculation_that_is_stopped_keeps_what_it_has() {
    let content = short_runs(4 << 20, 8);
    let stream = zlib_deflate(&content, 6);
    let chunk_len = stream.len().div_ceil(3);
    let chunk = Chunk::new(stream[chunk_len..][..chunk_len].to_vec(), &[]);
    let mut decoded = Vec::new();
    for steps in 1..=12 {
        let ahead = Ahead { steps, ..PLENTY };
        decoded.push(ahead.decode(&chunk).expect("a block").content.len());
        let (outcome, counts) = decode(&stream, chunk_len, 1 << 20, ahead);
        assert!(outcome == Outcome::End(content.clone(), 0), "{steps}");
        assert_eq!(counts.adopted, 2, "{steps}");
    }
    assert!(decoded.is_sorted_by(|less, more| less < more), "{decoded:?}");
    assert!(decoded[0] <= 64 << 10, "{decoded:?}");
}

#[test]
fn a_stream_whose_content_just_fills_the_memory_is_complete() {
    let content = short_runs(200_000, 7);
    let stream = zlib_deflate(&content, 6);
    let chunk_len = stream.len().div_ceil(2);
    let chunk = Chunk::new(stream[chunk_len..].to_vec(), &[]);
    let decoded_ahead = |memory_max| {
        let ahead = Ahead { memory_max, ..PLENTY };
        ahead.decode(&chunk).map_or(0, |speculation| speculation.content.len())
    };
    let all = decoded_ahead(PLENTY.memory_max);
    let sizes: Vec<usize> = (0..content.len()).collect();
    let enough = sizes.partition_point(|memory_max| decoded_ahead(*memory_max) < all);
    assert!(enough > 1000);
    // With a little less, the whole chunk is used, and the decoder has not written all that it has.
    for memory_max in enough - 300..=enough {
        let (outcome, _) = decode(&stream, chunk_len, 1 << 16, Ahead { memory_max, ..PLENTY });
        assert!(outcome == Outcome::End(content.clone(), 0), "{memory_max}");
    }
}

#[test]
fn what_follows_the_stream_is_unused() {
    let content = short_runs(2 << 20, 5);
    let stream = [&zlib_deflate(&content, 6)[..], &[0xa5; 300_000]].concat();
    for chunk_len in [1000, 70_000, 1 << 20] {
        let (outcome, _) = decode(&stream, chunk_len, 1 << 16, PLENTY);
        assert!(outcome == Outcome::End(content.clone(), 300_000), "{chunk_len}");
    }
}

#[test]
fn a_cut_stream_is_truncated_where_it_is_cut() {
    let stream = zlib_deflate(&short_runs(400_000, 6), 6);
    for cut in (0..stream.len()).step_by(997) {
        let (outcome, _) = decode(&stream[..cut], 20_000, 1 << 16, PLENTY);
        assert!(outcome == in_order(&stream[..cut]), "{cut}");
    }
}

proptest! {
    #[test]
    fn chunks_have_the_content_of_the_stream(
        seed: u64,
        len in 0_usize..2_000_000,
        level in 0_u32..10,
        chunk_len in 1000_usize..200_000,
        space in 1_usize..300_000,
        memory_max in 1_usize..4_000_000,
        steps in 1_usize..30,
        next_max in 0_usize..100_000,
    ) {
        let content = short_runs(len, seed);
        for stream in [zlib_deflate(&content, level), libdeflate(&content, level as i32)] {
            let ahead = Ahead { memory_max, steps, next_max };
            let (outcome, _) = decode(&stream, chunk_len, space.max(len / 500), ahead);
            prop_assert!(outcome == Outcome::End(content.clone(), 0));
        }
    }

    #[test]
    fn damage_is_found_where_it_is_without_chunks(
        seed: u64,
        chunk_len in 1000_usize..60_000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut stream = zlib_deflate(&short_runs(500_000, seed), 6);
        for (at, byte) in changes {
            *at.get_mut(&mut stream) = byte;
        }
        prop_assert!(decode(&stream, chunk_len, 1 << 16, PLENTY).0 == in_order(&stream));
    }
}
