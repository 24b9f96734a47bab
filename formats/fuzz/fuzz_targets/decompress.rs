//! Any bytes, as each of the compressions: refused or decoded, in bounded memory, and the same whatever the buffers are.

#![no_main]

use std::io::{BufReader, Read};

use formats::decompress::{Limits, reader};
use formats::sniff::{Compression, probe_head};
use libfuzzer_sys::fuzz_target;

/// More only takes longer.
const CONTENT_MAX: u64 = 1 << 20;

fuzz_target!(|stream: &[u8]| {
    let _ = probe_head(stream, true);
    let _ = probe_head(stream, false);
    for kind in Compression::ALL {
        let limits = Limits { window_max: 1 << 24, ..Limits::default() };
        let at_once = reader(kind, Box::new(stream), limits);
        let in_pieces = reader(kind, Box::new(BufReader::with_capacity(23, stream)), limits);
        let (at_once, in_pieces) = (read(at_once, 1 << 16), read(in_pieces, 1009));
        assert!(at_once == in_pieces, "{kind}: the buffers matter");
    }
});

/// All of the content, or `None` when the stream is refused.
fn read(reader: impl Read, step: usize) -> Option<Vec<u8>> {
    let (mut reader, mut content) = (reader.take(CONTENT_MAX), Vec::new());
    let mut buffer = vec![0; step];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Some(content),
            Ok(n) => content.extend_from_slice(&buffer[..n]),
            Err(_) => return None,
        }
    }
}
