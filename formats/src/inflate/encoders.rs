//! Deflate streams for tests.

use std::io::Write;

use flate2::write::DeflateEncoder;
use libdeflater::{CompressionLvl, Compressor};

pub(crate) fn zlib_deflate(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn libdeflate(content: &[u8], level: i32) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(level).unwrap());
    let mut stream = vec![0; compressor.deflate_compress_bound(content.len())];
    let len = compressor.deflate_compress(content, &mut stream).unwrap();
    stream.truncate(len);
    stream
}
