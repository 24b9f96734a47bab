//! Compressed streams of every kind, made by libraries and by the usual programs.

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use bzip2::write::BzEncoder;
use flate2::write::{DeflateEncoder, GzEncoder};
use formats::decompress::{Limits, reader};
use formats::sniff::Compression;
use formats::units::{CompressedUnit, Part, Splitter};
use liblzma::stream::{Check, MtStreamBuilder, Stream};
use twox_hash::XxHash32;

pub const KINDS: [Compression; 5] = Compression::ALL;

/// Something like a disk: text, noise and zeroes in turns, the same every time.
pub fn disk(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 65536);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let run = 1 + (state >> 40) as usize % 9000;
        match state >> 61 {
            0..3 => bytes.resize(bytes.len() + run, 0),
            3..5 => {
                for _ in 0..run {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    bytes.push((state >> 56) as u8);
                }
            }
            _ => bytes.extend(format!("line {} of a log\n", state >> 50).bytes().cycle().take(run)),
        }
    }
    bytes.truncate(len);
    bytes
}

/// One member, stream (of one block without lengths) or frame (with its content's length).
pub fn compress(kind: Compression, content: &[u8]) -> Vec<u8> {
    match kind {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => xz_with(content, Stream::new_easy_encoder(1, Check::Crc64).unwrap()),
        Compression::Zstd => zstd::bulk::compress(content, 1).unwrap(),
        Compression::Bzip2 => {
            let mut encoder = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Lz4 => Lz4::default().frame(content),
    }
}

/// How an LZ4 frame is written. Blocks hold 64 KiB and are independent.
#[derive(Clone, Copy, Default)]
pub struct Lz4 {
    pub block_checksums: bool,
    /// The content length in the header, if it has one.
    pub content_len: Option<u64>,
}

impl Lz4 {
    /// With a checksum of the content.
    pub fn frame(self, content: &[u8]) -> Vec<u8> {
        let flag = |set: bool, bit: u32| u8::from(set) << bit;
        let flags =
            0b0110_0100 | flag(self.block_checksums, 4) | flag(self.content_len.is_some(), 3);
        let mut described = vec![flags, 4 << 4];
        described.extend(self.content_len.iter().flat_map(|len| len.to_le_bytes()));
        let mut frame = b"\x04\x22\x4d\x18".to_vec();
        frame.extend(&described);
        frame.push((XxHash32::oneshot(0, &described) >> 8) as u8);
        for block in content.chunks(64 << 10) {
            let packed = lz4_flex::block::compress(block);
            let (bytes, plain) =
                if packed.len() < block.len() { (&packed[..], 0) } else { (block, 1 << 31) };
            frame.extend((bytes.len() as u32 | plain).to_le_bytes());
            frame.extend(bytes);
            if self.block_checksums {
                frame.extend(XxHash32::oneshot(0, bytes).to_le_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(XxHash32::oneshot(0, content).to_le_bytes());
        frame
    }
}

fn xz_with(content: &[u8], stream: Stream) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One xz stream of several blocks whose headers have both lengths.
pub fn xz_blocks(content: &[u8], block: u64, check: Check) -> Vec<u8> {
    let mut builder = MtStreamBuilder::new();
    xz_with(content, builder.threads(1).block_size(block).preset(0).check(check).encoder().unwrap())
}

/// A zstd frame with the length of its content and a checksum.
pub fn zstd_checked(content: &[u8]) -> Vec<u8> {
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    compressor.include_checksum(true).unwrap();
    compressor.compress(content).unwrap()
}

/// A zstd frame without the length of its content, with a checksum.
pub fn zstd_streamed(content: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Members as bgzip makes them, the empty one at the end included.
pub fn bgzf(content: &[u8]) -> Vec<u8> {
    content.chunks(65280).chain([&[][..]]).flat_map(bgzf_member).collect()
}

fn bgzf_member(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    let deflated = encoder.finish().unwrap();
    let mut member = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0".to_vec();
    member.extend(u16::try_from(deflated.len() + 25).unwrap().to_le_bytes());
    member.extend(deflated);
    member.extend(crc32fast::hash(content).to_le_bytes());
    member.extend((content.len() as u32).to_le_bytes());
    member
}

/// What a program makes of `input`. `None`, and a word about it: the program is not there. In CI it has to be.
pub fn run(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: cannot run {program}: {error}");
            return None;
        }
        child => child.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{program} {args:?} failed");
        Some(output.stdout)
    })
}

/// Decodes on one thread, `step` bytes at a time.
pub fn decode_by(kind: Compression, stream: &[u8], step: usize) -> io::Result<Vec<u8>> {
    let mut reader = reader(kind, Box::new(stream), Limits::default());
    read_by(&mut reader, step)
}

/// Decodes on one thread.
pub fn decode(kind: Compression, stream: &[u8]) -> io::Result<Vec<u8>> {
    decode_by(kind, stream, 1 << 20)
}

pub fn read_by(reader: &mut dyn Read, step: usize) -> io::Result<Vec<u8>> {
    let (mut content, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(content),
            n => content.extend_from_slice(&buffer[..n]),
        }
    }
}

/// Decodes through a splitter, and returns how many units and how many inline parts there were.
pub fn decode_split(
    kind: Compression,
    mut stream: &[u8],
    limits: Limits,
) -> io::Result<(Vec<u8>, usize, usize)> {
    let mut splitter = Splitter::new(kind, limits);
    let (mut content, mut units, mut inline) = (Vec::new(), 0, 0);
    while let Some(part) = splitter.next(&mut stream)? {
        match part {
            Part::Unit(unit) => {
                units += 1;
                content.extend(decode_unit(&unit)?);
            }
            Part::Inline(mut part) => {
                inline += 1;
                content.extend(read_by(&mut part, 1 << 20)?);
            }
        }
    }
    Ok((content, units, inline))
}

pub fn decode_unit(unit: &CompressedUnit) -> io::Result<Vec<u8>> {
    let content = read_by(&mut unit.reader(), 100_000)?;
    assert_eq!(content.len() as u64, unit.decoded_len());
    Ok(content)
}

/// The error inside of an error of a reader.
pub fn cause(error: io::Error) -> formats::Error {
    error.downcast().expect("a decoder's own error")
}
