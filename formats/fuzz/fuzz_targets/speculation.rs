//! Any bytes as a gzip stream whose members are decoded in chunks, each before what precedes it: the same as in order, or
//! both are refused.

#![no_main]

use std::io::{self, BufRead, Read};

use crc32fast::Hasher;
use formats::decompress::{Limits, reader};
use formats::sniff::Compression;
use formats::speculation::{
    BodyDecoder, Chunk, ChunkDecoder, Decoded, GzipReader, Speculation, SpeculationMemory,
};
use libfuzzer_sys::fuzz_target;

/// More only takes longer.
const CONTENT_MAX: u64 = 1 << 20;

fuzz_target!(|stream: &[u8]| {
    let mut whole = Vec::new();
    let limits = Limits::default();
    let outcome = reader(Compression::Gzip, Box::new(stream), limits)
        .take(CONTENT_MAX)
        .read_to_end(&mut whole);
    if whole.len() as u64 == CONTENT_MAX {
        return;
    }
    // How it is cut depends on the last byte, so that every stream is a seed.
    let how = usize::from(stream.last().copied().unwrap_or_default());
    let chunk_len = [40, 200, 1000, 1 << 20][how % 4];
    let memory = [0, 3000, 100_000][how / 4 % 3];
    let is_due = how / 12 % 2 == 1;
    let next_len = [0, 30, 1 << 20][how / 24 % 3];
    match (in_chunks(stream, chunk_len, Ahead { memory, is_due, next_len }), outcome) {
        (Ok(content), Ok(_)) => assert!(content == whole, "other content"),
        (Err(_), Err(_)) => (),
        (chunks, whole) => panic!("in chunks {:?}, whole {whole:?}", chunks.map(|_| ())),
    }
});

/// How far each chunk is decoded ahead.
#[derive(Clone, Copy)]
struct Ahead {
    memory: usize,
    /// After the first step.
    is_due: bool,
    /// Bytes of the next chunk that are known.
    next_len: usize,
}

fn in_chunks(mut stream: &[u8], chunk_len: usize, ahead: Ahead) -> io::Result<Vec<u8>> {
    let mut gzip = GzipReader::default();
    let (mut content, mut out) = (Vec::new(), vec![0; 999]);
    loop {
        match gzip.read(&mut stream, &mut out)? {
            0 => return Ok(content),
            n => content.extend_from_slice(&out[..n]),
        }
        if let Some(body) = gzip.lend_body() {
            decode_body(&mut gzip, &mut stream, body, (chunk_len, ahead), &mut content)?;
        }
    }
}

fn decode_body(
    gzip: &mut GzipReader,
    stream: &mut dyn BufRead,
    mut body: BodyDecoder,
    (chunk_len, ahead): (usize, Ahead),
    content: &mut Vec<u8>,
) -> io::Result<()> {
    let begin = content.len();
    let mut out = vec![0; 999];
    let mut next = gzip.next_chunk(stream, chunk_len)?;
    let unused = loop {
        let at = gzip.at() - next.len() as u64;
        let bytes = std::mem::take(&mut next);
        if bytes.is_empty() {
            break vec![];
        }
        next = gzip.next_chunk(stream, chunk_len)?;
        let chunk = Chunk::new(bytes, &next[..next.len().min(ahead.next_len)]);
        let memory = SpeculationMemory::new(ahead.memory);
        let speculation = Speculation::decode(&chunk, memory, || ahead.is_due).ok();
        let mut decoder = ChunkDecoder::new(&chunk, body, speculation);
        let mut state = None;
        let ended = loop {
            if state.is_none() && decoder.prepared_len().is_some() {
                state = Some(decoder.next_state());
            }
            let decoded = decoder.decode(&mut out);
            match decoded.map_err(|damaged| GzipReader::damaged(at, damaged))? {
                Decoded::Bytes(n) => content.extend_from_slice(&out[..n]),
                Decoded::Zeroes(n) => content.resize(content.len() + n, 0),
                Decoded::ChunkEnd => break false,
                Decoded::BodyEnd => break true,
            }
        };
        let mut unused = decoder.unused();
        body = state.unwrap_or_else(|| decoder.next_state());
        if ended {
            unused.extend_from_slice(&next[chunk.next_len()..]);
            break unused;
        }
    };
    let mut checksum = Hasher::new();
    checksum.update(&content[begin..]);
    gzip.return_body(body, &checksum, (content.len() - begin) as u64, unused);
    Ok(())
}
