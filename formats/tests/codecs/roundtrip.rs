//! Round trips through other programs' compressors.

use std::io::{self, BufReader, Read};

use formats::decompress::{Limits, reader, readers};
use formats::sniff::Compression::{Bzip2, Gzip, Lz4 as Lz4Frames, Xz, Zstd};
use proptest::prelude::*;

use crate::fixtures::*;

#[test]
fn every_size_at_a_boundary_comes_back() {
    for len in
        [0, 1, 511, 512, 513, 32767, 32768, 32769, 131_071, 131_072, 131_073, 1 << 20, 3 << 20]
    {
        let content = disk(len);
        for kind in KINDS {
            let stream = compress(kind, &content);
            assert!(decode(kind, &stream).unwrap() == content, "{kind}, {len} bytes");
        }
    }
}

#[test]
fn any_buffer_size_decodes() {
    let content = disk(300_000);
    for kind in KINDS {
        let stream = compress(kind, &content);
        for step in [1, 7, 4096, 32768, 299_999, 300_000, 300_001] {
            assert!(decode_by(kind, &stream, step).unwrap() == content, "{kind}, {step} at a time");
        }
        let dribble = BufReader::with_capacity(1, &stream[..]);
        let mut slow = reader(kind, Box::new(dribble), Limits::default());
        assert!(read_by(&mut slow, 5000).unwrap() == content, "{kind}, byte by byte");
    }
}

#[test]
fn members_streams_and_frames_follow_each_other() {
    let content = disk(200_000);
    for kind in KINDS {
        let stream: Vec<u8> =
            [&content[..70_000], &[], &content[70_000..70_001], &content[70_001..]]
                .iter()
                .flat_map(|part| compress(kind, part))
                .collect();
        assert!(decode(kind, &stream).unwrap() == content, "{kind}");
    }
}

#[test]
fn output_of_common_programs_is_decoded() {
    let content = disk(2_500_000);
    let programs: [(&str, &[&str], _); 25] = [
        ("gzip", &["-c"], Gzip),
        ("gzip", &["-1c"], Gzip),
        ("gzip", &["-9c"], Gzip),
        ("pigz", &["-c"], Gzip),
        ("pigz", &["-ic", "-b", "128"], Gzip),
        ("igzip", &["-c"], Gzip),
        ("xz", &["-1c", "-T1"], Xz),
        ("xz", &["-0c", "-T2", "--block-size=1MiB"], Xz),
        ("xz", &["-1c", "--check=sha256", "--block-list=100KiB,1MiB,0"], Xz),
        ("xz", &["-1c", "--check=crc32"], Xz),
        ("xz", &["-1c", "--check=none"], Xz),
        ("xz", &["-1c", "--x86", "--delta=dist=4", "--lzma2=preset=1"], Xz),
        ("pixz", &["-t", "-1"], Xz),
        ("zstd", &["-c"], Zstd),
        ("zstd", &["-19c", "--long=27", "-T2"], Zstd),
        ("zstd", &["-c", "--no-check", "--fast=5"], Zstd),
        ("pzstd", &["-c", "-p", "2", "-1"], Zstd),
        ("zstd", &["-c", "--ultra", "-22"], Zstd),
        ("bzip2", &["-c"], Bzip2),
        ("bzip2", &["-1c"], Bzip2),
        ("lz4", &["-c"], Lz4Frames),
        ("lz4", &["-c", "-BD", "-B4"], Lz4Frames),
        ("lz4", &["-c", "-BX", "-B5", "-9"], Lz4Frames),
        ("lz4", &["-c", "-BD", "-BX", "-B6", "-12"], Lz4Frames),
        ("lz4", &["-c", "--no-frame-crc", "--fast=5"], Lz4Frames),
    ];
    for (program, args, kind) in programs {
        let Some(stream) = run(program, args, &content) else { continue };
        assert!(decode(kind, &stream).unwrap() == content, "{program} {args:?}");
        let (split, ..) = decode_split(kind, &stream, Limits::default()).unwrap();
        assert!(split == content, "{program} {args:?}, split");
    }
}

#[test]
fn padding_that_the_format_knows_is_passed_over() {
    let content = disk(1000);
    let gzip = compress(Gzip, &content);
    for zeroes in [1, 511, 10_000] {
        assert_eq!(decode(Gzip, &[&gzip[..], &vec![0; zeroes]].concat()).unwrap(), content);
    }
    let xz = compress(Xz, &content);
    let padded = [&xz[..], &[0; 8], &xz, &xz, &[0; 4]].concat();
    assert_eq!(decode(Xz, &padded).unwrap(), content.repeat(3));

    let zstd = compress(Zstd, &content);
    let skippable = b"\x5f\x2a\x4d\x18\x03\0\0\0abc";
    let framed = [&skippable[..], &zstd, skippable, skippable, &zstd, skippable].concat();
    assert_eq!(decode(Zstd, &framed).unwrap(), content.repeat(2));

    let lz4 = compress(Lz4Frames, &content);
    let framed = [&skippable[..], &lz4, skippable, skippable, &lz4, skippable].concat();
    assert_eq!(decode(Lz4Frames, &framed).unwrap(), content.repeat(2));
}

#[test]
fn every_field_of_a_gzip_header_is_passed_over() {
    let plain = compress(Gzip, b"content");
    let mut header = b"\x1f\x8b\x08\x1f\x01\x02\x03\x04\x02\x03".to_vec();
    header.extend(b"\x05\0extra");
    header.extend(b"name\0");
    header.extend([b'c'; 100_000]);
    header.push(0);
    let crc = crc32fast::hash(&header) as u16;
    let stream = |crc: u16| [&header[..], &crc.to_le_bytes(), &plain[10..]].concat();
    assert_eq!(decode(Gzip, &stream(crc)).unwrap(), b"content");
    assert!(decode(Gzip, &stream(!crc)).is_err());
}

#[test]
fn nested_compressions_are_undone_together() {
    let content = disk(400_000);
    let stream = compress(Gzip, &compress(Xz, &compress(Zstd, &content)));
    let mut reader = readers(&[Gzip, Xz, Zstd], Box::new(&stream[..]), Limits::default());
    assert!(read_by(&mut reader, 1 << 20).unwrap() == content);
}

#[test]
fn errors_of_the_input_come_through_as_they_are() {
    #[derive(Debug, thiserror::Error)]
    #[error("the cable was cut")]
    struct Cut;
    struct Cutting;
    impl Read for Cutting {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other(Cut))
        }
    }
    for kind in KINDS {
        let stream = compress(kind, &disk(100_000));
        for cut in [0, 1, 11, stream.len() / 2, stream.len() - 1, stream.len()] {
            let input = BufReader::with_capacity(1000, (&stream[..cut]).chain(Cutting));
            let mut reader = reader(kind, Box::new(input), Limits::default());
            let error = read_by(&mut reader, 3000).unwrap_err();
            assert!(error.downcast::<Cut>().is_ok(), "{kind}, cut at {cut}");
            assert!(reader.read(&mut [0; 10]).is_err(), "{kind}: no good bytes after an error");
        }
    }
}

#[test]
fn an_interrupted_read_is_retried() {
    struct Interrupting<'a>(&'a [u8], bool);
    impl Read for Interrupting<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(out) }
        }
    }
    let content = disk(50_000);
    for kind in KINDS {
        let stream = compress(kind, &content);
        let input = BufReader::with_capacity(100, Interrupting(&stream, false));
        let mut reader = reader(kind, Box::new(input), Limits::default());
        assert!(read_by(&mut reader, 3000).unwrap() == content, "{kind}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_content_in_any_pieces_comes_back(
        pieces in prop::collection::vec((any::<u8>(), 0_usize..40_000, any::<bool>()), 0..5),
        step in 1_usize..70_000,
    ) {
        let pieces: Vec<Vec<u8>> = pieces
            .into_iter()
            .map(|(byte, len, same)| if same { vec![byte; len] } else { disk(len + 256)[usize::from(byte)..].to_vec() })
            .collect();
        for kind in KINDS {
            let stream: Vec<u8> = pieces.iter().flat_map(|piece| compress(kind, piece)).collect();
            if stream.is_empty() {
                continue;
            }
            prop_assert!(decode_by(kind, &stream, step).unwrap() == pieces.concat());
            let (split, ..) = decode_split(kind, &stream, Limits { unit_max: step, ..Limits::default() }).unwrap();
            prop_assert!(split == pieces.concat());
        }
    }
}
