//! The extent stream: what is sent is received, and nothing else is accepted.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

use std::io;

use clonestream::Error;
use clonestream::extents::{
    Coding, DATA_MAX, Entry, EntryKind, ExtentReader, ExtentWriter, Frame, Packer, Preamble,
    is_extent_stream,
};
use clonestream::offer::{SourceIdentity, StreamPosition};
use proptest::prelude::*;
use testkit::{Fill, SparseDisk, pattern, sparse_disk};

const IDENTITY: SourceIdentity = SourceIdentity(*b"0123456789abcdef");

fn from_start() -> Preamble {
    Preamble { identity: IDENTITY, begin: StreamPosition::default() }
}

fn file(path: &str, size: usize) -> Entry {
    Entry {
        path: path.into(),
        kind: EntryKind::Regular,
        size: size as u64,
        mode: 0o640,
        modified: (1_700_000_000, 5),
    }
}

/// Encodes entries with their content, in frames of `piece` bytes and with every coding in turn; zero ones become zero frames.
fn send(preamble: &Preamble, entries: &[(Entry, Vec<u8>)], piece: usize) -> Vec<u8> {
    let mut packer = Packer::new();
    let mut codings = [Coding::Lz4, Coding::Plain, Coding::Zstd].into_iter().cycle();
    let mut writer = ExtentWriter::create(Vec::new(), preamble).unwrap();
    for (entry, content) in &entries[preamble.begin.entry as usize..] {
        let begin = writer.next_entry_start() as usize;
        writer.write_entry(entry).unwrap();
        for bytes in content[begin..].chunks(piece) {
            if bytes.iter().all(|byte| *byte == 0) {
                writer.write_zeroes(bytes.len() as u64).unwrap();
            } else {
                let packed = packer.pack(bytes, codings.next().unwrap());
                writer.write_data(&packed, bytes).unwrap();
            }
        }
    }
    writer.finish().unwrap()
}

/// Decodes a stream on top of what was received before.
fn take(stream: &[u8], taken: &mut Vec<(Entry, Vec<u8>)>) -> io::Result<StreamPosition> {
    let mut reader = ExtentReader::open(stream)?;
    let begin = reader.preamble().begin;
    let mut scrap = vec![0; DATA_MAX];
    while let Some(frame) = reader.next_frame()? {
        match frame {
            Frame::Entry { index, entry } => {
                assert!(entry.size < 1 << 30, "no test sends as much");
                let index = index as usize;
                taken.truncate(index + 1);
                if taken.len() == index {
                    taken.push((entry, Vec::new()));
                }
                let keep = if index as u64 == begin.entry { begin.at as usize } else { 0 };
                taken[index].1.truncate(keep);
            }
            Frame::Data(data) => {
                data.unpack(&mut scrap)?;
                let content = &mut taken.last_mut().unwrap().1;
                assert_eq!(content.len() as u64, data.at);
                content.extend(&scrap[..data.len()]);
            }
            Frame::Zero { at, len } => {
                let content = &mut taken.last_mut().unwrap().1;
                assert_eq!(content.len() as u64, at);
                content.resize(content.len() + len as usize, 0);
            }
        }
    }
    Ok(reader.position())
}

fn taken(stream: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
    let mut all = Vec::new();
    take(stream, &mut all).map(|_| all)
}

fn small_tree() -> Vec<(Entry, Vec<u8>)> {
    let directory = Entry { kind: EntryKind::Directory, size: 0, ..file("folder", 0) };
    let link = Entry { kind: EntryKind::Symlink(b"../any/where".into()), ..file("folder/link", 0) };
    let twin = Entry { kind: EntryKind::HardLink(b"disk.img".into()), ..file("twin", 0) };
    let disk =
        SparseDisk::new(40_000).with(4096, 9000, Fill::Text(1)).with(20_000, 700, Fill::Random(2));
    vec![
        (file("disk.img", 40_000), disk.bytes()),
        (file("empty", 0), vec![]),
        (directory, vec![]),
        (link, vec![]),
        (file("folder/ä", 3), vec![0, 0, 0]),
        (twin, vec![]),
    ]
}

#[test]
fn tree_survives_the_stream() {
    let tree = small_tree();
    let stream = send(&from_start(), &tree, 4096);
    assert!(is_extent_stream(&stream));
    assert_eq!(taken(&stream).unwrap(), tree);
    let nothing = send(&from_start(), &[], 1);
    assert_eq!(taken(&nothing).unwrap(), []);
}

#[test]
fn zeroes_cost_nothing_and_random_bytes_are_not_enlarged() {
    let disk = |fill: Fill| {
        let bytes = SparseDisk::new(64 << 20).with(8 << 20, 4 << 20, fill).bytes();
        send(&from_start(), &[(Entry::disk(64 << 20), bytes)], DATA_MAX).len()
    };
    let overhead = 1000;
    assert!(disk(Fill::Random(1)) < (4 << 20) + overhead);
    assert!(disk(Fill::Text(1)) < (4 << 20) / 2);
    assert!(disk(Fill::Byte(0)) < overhead);
}

#[test]
fn truncated_stream_is_detected_at_each_byte() {
    let stream = send(&from_start(), &small_tree(), 4096);
    for len in 0..stream.len() {
        let error = taken(&stream[..len]).expect_err("a cut stream is no whole one");
        let error = error.downcast::<Error>().expect("a reason");
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
    }
}

#[test]
fn each_flipped_bit_is_detected() {
    // A frame of each coding.
    let text = |disk: SparseDisk, at: u64| disk.with(at, 600, Fill::Text(1));
    let disk = [0, 4096, 8192].into_iter().fold(SparseDisk::new(9000), text);
    let tree = vec![(file("a", 9000), disk.bytes())];
    let stream = send(&from_start(), &tree, 4096);
    for bit in 0..stream.len() * 8 {
        let mut bytes = stream.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match taken(&bytes) {
            // A bit of a compressed frame may mean nothing: then nothing has changed.
            Ok(all) => assert!(all == tree, "bit {bit}"),
            Err(error) => assert!(error.downcast::<Error>().is_ok(), "bit {bit}"),
        }
    }
}

#[test]
fn lost_duplicated_or_moved_frames_are_detected() {
    let content = pattern(4 * 4096);
    let tree = vec![(Entry::disk(content.len() as u64), content)];
    let stream = send(&from_start(), &tree, 4096);
    // All frames of data are equally long: their places are known from behind.
    let end = stream.len() - 32;
    let mut lens = Vec::new();
    let mut at = 48;
    while at < end {
        let len = 32 + u32::from_le_bytes(stream[at + 4..at + 8].try_into().unwrap()) as usize;
        lens.push((at, len));
        at += len;
    }
    assert_eq!(lens.len(), 5, "an entry and four times data");
    for window in lens[1..].windows(2) {
        let ((one, one_len), (other, other_len)) = (window[0], window[1]);
        let (a, b) = (&stream[one..one + one_len], &stream[other..other + other_len]);
        let with = |middle: &[&[u8]]| {
            [&stream[..one], &middle.concat(), &stream[other + other_len..]].concat()
        };
        assert_eq!(with(&[a, b]), stream);
        for changed in [with(&[b, a]), with(&[a]), with(&[b]), with(&[a, a, b]), with(&[])] {
            assert!(taken(&changed).is_err());
        }
    }
    assert!(taken(&[&stream[..], b"x"].concat()).is_err(), "something follows");
    assert!(taken(&[&stream[..], &stream[..]].concat()).is_err(), "the same follows");
}

#[test]
fn content_of_another_length_than_its_entry_is_rejected() {
    let mut packer = Packer::new();
    let bytes = b"12345";
    let piece = packer.pack(bytes, Coding::Lz4);
    let begin = || ExtentWriter::create(Vec::new(), &from_start()).unwrap();
    let mut short = begin();
    short.write_entry(&file("a", 6)).unwrap();
    short.write_data(&piece, bytes).unwrap();
    assert!(short.write_entry(&file("b", 0)).is_err());
    assert!(short.finish().is_err());
    let mut long = begin();
    long.write_entry(&file("a", 4)).unwrap();
    assert!(long.write_data(&piece, bytes).is_err() && long.write_zeroes(5).is_err());
    assert!(begin().write_data(&piece, bytes).is_err(), "content of nothing");
    assert!(begin().write_entry(&file("../a", 0)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_disk_survives_the_stream(
        disk in sparse_disk(3 << 20),
        piece in prop_oneof![Just(512_usize), Just(4096), Just(65536), Just(DATA_MAX), 1000_usize..100_000],
    ) {
        let tree = vec![(Entry::disk(disk.len()), disk.bytes())];
        prop_assert_eq!(taken(&send(&from_start(), &tree, piece)).unwrap(), tree);
    }

    #[test]
    fn interrupted_stream_resumes_at_any_byte(
        cuts in prop::collection::vec(0.0..1.0f64, 1..6),
        piece in 500_usize..9000,
    ) {
        let tree = small_tree();
        let mut have = Vec::new();
        let mut begin = StreamPosition::default();
        for cut in cuts {
            let stream = send(&Preamble { identity: IDENTITY, begin }, &tree, piece);
            let part = &stream[..(stream.len() as f64 * cut) as usize];
            // The entries that a receiver has completely when the stream is interrupted.
                    let mut scrap = vec![0; DATA_MAX];
            let Ok(mut reader) = ExtentReader::open(part) else { continue };
            while let Ok(Some(frame)) = reader.next_frame() {
                match frame {
                    Frame::Entry { index, entry } => {
                        let index = index as usize;
                        have.truncate(index + 1);
                        if have.len() == index {
                            have.push((entry, Vec::new()));
                        }
                    }
                    Frame::Data(data) => {
                        data.unpack(&mut scrap).unwrap();
                        let content: &mut Vec<u8> = &mut have.last_mut().unwrap().1;
                        content.truncate(data.at as usize);
                        content.extend(&scrap[..data.len()]);
                    }
                    Frame::Zero { at, len } => {
                        let content: &mut Vec<u8> = &mut have.last_mut().unwrap().1;
                        content.resize((at + len) as usize, 0);
                    }
                }
            }
            prop_assert!(reader.position() >= begin);
            begin = reader.position();
        }
        let stream = send(&Preamble { identity: IDENTITY, begin }, &tree, piece);
        let end = take(&stream, &mut have).unwrap();
        prop_assert_eq!(end, StreamPosition { entry: 5, at: 0 });
        prop_assert_eq!(have, tree);
    }

    #[test]
    fn arbitrary_bytes_are_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(taken(&bytes).is_err());
        let mut begun = send(&from_start(), &[], 1);
        begun.truncate(48);
        begun.extend(&bytes);
        prop_assert!(taken(&begun).is_err());
    }
}
