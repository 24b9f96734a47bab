//! Clusters, with whatever qcow2 leaves behind them.

use std::io::Write;

use flate2::write::DeflateEncoder;
use formats::Error;
use formats::cluster::ClusterDecoder;

use crate::fixtures::*;

type Decode = fn(&mut ClusterDecoder, &[u8], &mut [u8]) -> Result<(), Error>;

fn methods(content: &[u8]) -> [(&'static str, Vec<u8>, Decode); 2] {
    let mut deflate = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    deflate.write_all(content).unwrap();
    [
        ("deflate", deflate.finish().unwrap(), ClusterDecoder::inflate),
        ("zstd", zstd::bulk::compress(content, 3).unwrap(), ClusterDecoder::unzstd),
    ]
}

#[test]
fn clusters_of_every_size_come_back_with_garbage_behind_them() {
    let mut decoder = ClusterDecoder::new();
    for len in [512, 4096, 65536, 2 << 20] {
        let content = disk(len);
        for (method, packed, decode) in methods(&content) {
            for garbage in [0, 1, 511] {
                let input = [&packed[..], &vec![0xa5; garbage]].concat();
                let mut out = vec![1; len];
                decode(&mut decoder, &input, &mut out).unwrap();
                assert!(out == content, "{method}, {len} bytes and {garbage} of garbage");
            }
        }
    }
}

#[test]
fn a_stream_longer_than_the_cluster_is_accepted() {
    let mut decoder = ClusterDecoder::new();
    let content = disk(70_000);
    for (method, packed, decode) in methods(&content) {
        let mut out = vec![1; 65536];
        decode(&mut decoder, &packed, &mut out).unwrap();
        assert!(out == content[..65536], "{method}");
    }
}

#[test]
fn a_cluster_that_stays_short_is_refused() {
    let mut decoder = ClusterDecoder::new();
    let content = disk(65536);
    for (method, packed, decode) in methods(&content[..65535]) {
        let mut out = vec![1; 65536];
        assert!(decode(&mut decoder, &packed, &mut out).is_err(), "{method}: one byte short");
        for cut in [0, 1, 10, packed.len() / 2, packed.len() - 1] {
            assert!(
                decode(&mut decoder, &packed[..cut], &mut out).is_err(),
                "{method} cut at {cut}"
            );
        }
        let (_, good, _) =
            methods(&content).into_iter().find(|(name, ..)| *name == method).unwrap();
        decode(&mut decoder, &good, &mut out).expect("the decoder is as new after an error");
        assert!(out == content);
    }
}
