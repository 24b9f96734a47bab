//! Any bytes, as the deflate stream of a gzip member and as a cluster: zlib-rs has the same opinion of them.

#![no_main]

use std::io::{BufReader, Read};

use flate2::{Decompress, FlushDecompress, Status};
use formats::cluster::ClusterDecoder;
use formats::decompress::{Limits, reader};
use formats::sniff::Compression;
use libfuzzer_sys::fuzz_target;

/// More only takes longer.
const CONTENT_MAX: usize = 1 << 18;

fuzz_target!(|deflated: &[u8]| {
    // The seeds are gzip streams; what follows their header is deflate.
    let deflated =
        deflated.strip_prefix(b"\x1f\x8b\x08\0").and_then(|rest| rest.get(6..)).unwrap_or(deflated);

    let mut inflate = Decompress::new(false);
    let mut expected = vec![0; CONTENT_MAX];
    let status = inflate.decompress(deflated, &mut expected, FlushDecompress::Finish);
    expected.truncate(inflate.total_out() as usize);
    if expected.len() == CONTENT_MAX {
        return;
    }

    let header: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";
    for (input_step, step) in [(1 << 20, 1 << 20), (7, 400)] {
        let input = BufReader::with_capacity(input_step, header.chain(deflated));
        let (content, ended) =
            read(reader(Compression::Gzip, Box::new(input), Limits::default()), step);
        if status == Ok(Status::StreamEnd) {
            assert!(content == expected, "other content");
        } else {
            assert!(!ended, "zlib-rs does not see the end of it");
        }
    }
    if !expected.is_empty() {
        let mut cluster = vec![0; expected.len()];
        if ClusterDecoder::new().inflate(deflated, &mut cluster).is_ok() {
            assert!(cluster == expected, "another cluster");
        } else {
            assert!(status != Ok(Status::StreamEnd), "a good cluster is refused");
        }
    }
});

/// What came before the end or an error, and whether it was the end.
fn read(mut reader: impl Read, step: usize) -> (Vec<u8>, bool) {
    let (mut content, mut buffer) = (Vec::new(), vec![0; step]);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return (content, true),
            Ok(n) => content.extend_from_slice(&buffer[..n]),
            Err(_) => return (content, false),
        }
    }
}
