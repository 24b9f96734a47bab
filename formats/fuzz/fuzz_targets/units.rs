//! Any bytes, cut into parts that are decoded apart: the same as the whole, or both are refused.

#![no_main]

use std::io::{self, Read};

use formats::decompress::{Limits, reader};
use formats::sniff::Compression;
use formats::units::{Part, Splitter, worth_splitting};
use libfuzzer_sys::fuzz_target;

/// More only takes longer.
const CONTENT_MAX: u64 = 1 << 20;

fuzz_target!(|stream: &[u8]| {
    // How large units may be depends on the last byte, so that every stream is a seed.
    let unit_max = [1, 300, 1 << 20][usize::from(stream.last().map_or(0, |byte| byte % 3))];
    let limits = Limits { window_max: 1 << 24, unit_max };
    for kind in Compression::ALL {
        let _ = worth_splitting(kind, stream, limits);
        let mut whole = Vec::new();
        let outcome =
            reader(kind, Box::new(stream), limits).take(CONTENT_MAX).read_to_end(&mut whole);
        if whole.len() as u64 == CONTENT_MAX {
            continue;
        }
        match (split(kind, stream, limits), outcome) {
            (Ok(content), Ok(_)) => assert!(content == whole, "{kind}: other content"),
            (Err(_), Err(_)) => (),
            (split, whole) => panic!("{kind}: in parts {:?}, whole {whole:?}", split.map(|_| ())),
        }
    }
});

fn split(kind: Compression, mut stream: &[u8], limits: Limits) -> io::Result<Vec<u8>> {
    let (mut splitter, mut content) = (Splitter::new(kind, limits), Vec::new());
    while let Some(part) = splitter.next(&mut stream)? {
        match part {
            Part::Unit(unit) => {
                assert!(unit.compressed_len() <= limits.unit_max + 12, "a unit is too large");
                let before = content.len();
                unit.reader().take(CONTENT_MAX).read_to_end(&mut content)?;
                assert_eq!((content.len() - before) as u64, unit.decoded_len().min(CONTENT_MAX));
            }
            Part::Inline(part) => drop(part.take(CONTENT_MAX).read_to_end(&mut content)?),
        }
    }
    Ok(content)
}
