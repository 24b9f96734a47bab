//! The same content as one thread decodes, in pieces that are aligned.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use formats::decompress::{Limits, reader};
use proptest::prelude::*;
use testkit::short_runs;

use super::*;

fn gzip(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Checks the pieces too.
fn in_parallel(stream: &[u8], threads: usize, buffer_len: usize) -> Result<Vec<u8>, String> {
    let progress = Arc::new(Progress::default());
    let mut gzip = ParallelGzip::new(stream, threads, buffer_len, &progress).unwrap();
    let mut content = Vec::new();
    let mut ended = false;
    while let Some(piece) = gzip.next_piece().map_err(|error| error.to_string())? {
        assert!(!ended, "only the last piece may end inside of a block");
        ended = piece.len() % ALIGNMENT as u64 != 0;
        match piece {
            Piece::Data(buffer, range) => {
                assert!(buffer[range.start..].as_ptr().addr().is_multiple_of(ALIGNMENT));
                content.extend_from_slice(&buffer[range]);
            }
            Piece::Zeroes(len) => content.resize(content.len() + len as usize, 0),
        }
    }
    Ok(content)
}

fn in_order(stream: &[u8]) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let kind = formats::sniff::Compression::Gzip;
    let mut reader = reader(kind, Box::new(stream), Limits::default());
    reader.read_to_end(&mut content).map_err(|error| error.to_string())?;
    Ok(content)
}

#[test]
fn members_of_any_length_are_the_same_content() {
    let long = short_runs(16 << 20, 1);
    let short = short_runs(100_000, 2);
    let parts = [&short[..], &long, &[], &long[..9 << 20], &short, &long[1000..5 << 20]];
    let stream: Vec<u8> =
        parts.iter().zip([6, 9, 6, 2, 1, 0]).flat_map(|(part, level)| gzip(part, level)).collect();
    for threads in [1, 2, 5] {
        for buffer_len in [64 << 10, 1 << 20] {
            let decoded = in_parallel(&stream, threads, buffer_len).unwrap();
            assert!(decoded == parts.concat(), "{threads}, {buffer_len}");
        }
    }
    let padded = [&stream[..], &[0; 1000]].concat();
    assert!(in_parallel(&padded, 3, 1 << 20).unwrap() == parts.concat());
}

#[test]
fn a_stream_that_ends_early_or_is_damaged_is_refused_as_by_one_thread() {
    let stream = gzip(&short_runs(12 << 20, 3), 6);
    assert!(stream.len() > 3 << 20);
    for cut in [1, 7, 8, 9, 100_000, 400_000, stream.len() - (2 << 20)] {
        let cut = &stream[..stream.len() - cut];
        let error = in_parallel(cut, 3, 1 << 20).unwrap_err();
        assert_eq!(error, in_order(cut).unwrap_err());
        assert!(error.contains("ends too early"), "{error}");
    }
    for (at, error) in [
        (stream.len() - 1, "the length of a member does not match its content"),
        (stream.len() - 5, "the checksum of a member does not match its content"),
        (stream.len() - 1000, "damaged near byte"),
        (3 << 20, "damaged near byte"),
        (1_100_000, "damaged near byte"),
    ] {
        let mut damaged = stream.clone();
        damaged[at] ^= 0x55;
        let found = in_parallel(&damaged, 3, 1 << 20).unwrap_err();
        assert!(found.contains(error), "{at}: {found}");
        assert!(in_order(&damaged).is_err());
    }
    let followed = [&stream[..], b"more"].concat();
    assert_eq!(in_parallel(&followed, 3, 1 << 20), Err(in_order(&followed).unwrap_err()));
}

#[test]
fn a_member_that_begins_with_a_mebibyte_of_nothing_is_decoded_in_parallel_all_the_same() {
    let content = short_runs(4 << 20, 7);
    let member = gzip(&content, 6);
    let (header, body) = member.split_at(10);
    let empty_blocks = [0, 0, 0, 0xff, 0xff].repeat(SERIAL as usize / 4);
    let stream = [header, &empty_blocks, body].concat();
    let progress = Arc::new(Progress::default());
    let mut gzip = ParallelGzip::new(&stream[..], 2, 1 << 20, &progress).unwrap();
    assert!(gzip.next_piece().unwrap().is_some());
    assert!(gzip.lent.is_some());
    assert!(in_parallel(&stream, 2, 1 << 20).unwrap() == content);
}

#[test]
fn a_stream_can_be_left_at_any_piece() {
    let stream = gzip(&short_runs(8 << 20, 4), 6);
    for pieces in [0, 1, 3, 9] {
        let progress = Arc::new(Progress::default());
        let mut gzip = ParallelGzip::new(&stream[..], 3, 1 << 18, &progress).unwrap();
        for _ in 0..pieces {
            assert!(gzip.next_piece().unwrap().is_some());
        }
    }
}

#[test]
fn the_input_s_error_comes_through() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() { Err(io::Error::other("unplugged")) } else { self.0.read(out) }
        }
    }
    let stream = gzip(&short_runs(12 << 20, 5), 6);
    for len in [5, 500_000, 2 << 20, 3 << 20] {
        let input = io::BufReader::new(Failing(&stream[..len]));
        let progress = Arc::new(Progress::default());
        let mut gzip = ParallelGzip::new(input, 3, 1 << 20, &progress).unwrap();
        let error = loop {
            match gzip.next_piece() {
                Ok(piece) => assert!(piece.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "unplugged");
    }
}

#[test]
fn time_of_all_threads_is_decompression() {
    let stream = gzip(&short_runs(12 << 20, 6), 6);
    let progress = Arc::new(Progress::default());
    let mut gzip = ParallelGzip::new(&stream[..], 2, 1 << 20, &progress).unwrap();
    while gzip.next_piece().unwrap().is_some() {}
    let spent = progress.times().spent();
    assert!(spent.decompression > 0.0, "{spent:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_members_on_any_number_of_threads(
        seed: u64,
        lens in prop::collection::vec(0_usize..9_000_000, 1..4),
        level in 0_u32..10,
        threads in 1_usize..6,
        buffer_len in 1_usize..200,
    ) {
        let whole = short_runs(lens.iter().sum(), seed);
        let mut rest = &whole[..];
        let mut stream = Vec::new();
        for len in lens {
            let (member, after) = rest.split_at(len);
            stream.extend(gzip(member, level));
            rest = after;
        }
        let decoded = in_parallel(&stream, threads, buffer_len * ALIGNMENT).unwrap();
        prop_assert!(decoded == whole);
    }
}
