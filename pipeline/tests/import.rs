//! Whole imports from a source in memory into files: every route, and a failure at every read.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::{Memory, gzip, run, target};
use contract::{ByteCount, Hasher};
use pipeline::{
    ByteStream, Error, FileSpace, Options, Progress, Source, SourceError, SourceFacts,
    SourceFormat, Target, import,
};
use testkit::{Compressor, FileSystem, FileSystemKind, LoopDevice, QemuImg, compress};

const MIB: usize = 1 << 20;

/// Data with holes: words that hold their own offset, interrupted by zeroes of many lengths.
fn disk(len: usize) -> Vec<u8> {
    let mut bytes = testkit::pattern(len as u64);
    let (mut at, mut hole) = (0, 512);
    while at < len {
        let end = (at + hole).min(len);
        bytes[at..end].fill(0);
        at = end + 3 * hole + 4096;
        hole = (hole * 3) % 1_000_003;
    }
    bytes
}

fn nothing_left(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn every_route_gives_the_same_disk() {
    let disk = disk(37 * MIB + 123 * 512);
    let cases = [
        ("raw by ranges", Memory::new(disk.clone(), true), "ranges"),
        ("raw in order", Memory::new(disk.clone(), false), "stream"),
        ("raw.gz", Memory::new(gzip(&disk), true), "stream"),
    ];
    for (case, source, route) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let report = run(&source, &path, &Options::default()).unwrap();
        assert_eq!(report.route, route, "{case}");
        assert_eq!(report.virtual_size, disk.len() as u64, "{case}");
        assert_eq!(report.bytes_written + report.zero_bytes, disk.len() as u64, "{case}");
        assert!(fs::read(&path).unwrap() == disk, "{case}: the disks differ");
        let allocated = fs::metadata(&path).unwrap().blocks() * 512;
        assert!(allocated <= report.bytes_written + (MIB as u64), "{case}: holes were filled");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{case}: something is left");
    }
}

/// A source for which time passes only while its next bytes are awaited.
struct Slow {
    inner: Memory,
    now: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

struct SlowStream {
    inner: Box<dyn ByteStream>,
    now: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Source for Slow {
    fn facts(&self) -> &SourceFacts {
        self.inner.facts()
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let (now, reads) = (Arc::clone(&self.now), Arc::clone(&self.reads));
        Box::new(SlowStream { inner: self.inner.open(at, end), now, reads })
    }
}

impl ByteStream for SlowStream {
    fn next(&mut self) -> Result<Option<bytes::Bytes>, SourceError> {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.next()
    }
}

#[test]
fn the_time_report_counts_each_wait_for_the_source_once() {
    let disk = disk(5 * MIB);
    let qcow2 = QemuImg::require().map(|qemu| {
        let raw = testkit::Image::from_bytes(&disk);
        qemu.convert(raw.path(), "raw", "qcow2", &["-c"]).bytes()
    });
    let raw = [Memory::new(disk.clone(), false), Memory::new(gzip(&disk), false)];
    let qcow2 =
        qcow2.map(|image| [Memory::new(image.clone(), false), Memory::new(gzip(&image), false)]);
    for inner in raw.into_iter().chain(qcow2.into_iter().flatten()) {
        for digest in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            let (now, reads) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
            let clock = Arc::clone(&now);
            let progress =
                Progress::with_clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
            let slow = Slow { inner: inner.again(), now, reads: Arc::clone(&reads) };
            let options = Options { digest, ..Options::default() };
            // Other threads see time pass while the source is awaited: only the reader's own sums are exact.
            let report = import(&slow, &target(&path), &options, &Arc::new(progress)).unwrap();
            let reads = reads.load(Ordering::Relaxed);
            assert_eq!(report.time.network_wait, reads as f64, "{}", report.route);
            assert_eq!((report.time.decompression, report.time.digest_wait), (0.0, 0.0));
            assert!(fs::read(&path).unwrap() == disk);
        }
    }
}

#[test]
fn sizes_at_every_boundary_come_out_whole() {
    for len in [1, 511, 512, 513, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 16 * MIB + 1] {
        let disk = &testkit::pattern(len as u64)[..len];
        for ranges in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            run(&Memory::new(disk.to_vec(), ranges), &path, &Options::default()).unwrap();
            let mut whole = disk.to_vec();
            whole.resize(len.next_multiple_of(512), 0);
            assert!(fs::read(&path).unwrap() == whole, "{len} bytes, ranges: {ranges}");
        }
    }
}

#[test]
fn a_checksum_not_set_in_time_is_calculated() {
    let disk = disk(3 * MIB);
    let later = Arc::new(OnceLock::new());
    let options = Options { checksum_later: Some(Arc::clone(&later)), ..Options::default() };
    let directory = tempfile::tempdir().unwrap();
    run(&Memory::new(disk.clone(), false), &directory.path().join("disk.img"), &options).unwrap();
    let mut hasher = Hasher::sha256();
    hasher.update(&disk);
    assert_eq!(later.get(), Some(&hasher.finish()));
}

/// A preallocated device does not start zeroed.
#[test]
fn tail_of_the_last_sector_is_zeroed() {
    let device_len = 4 * MIB as u64;
    for len in [513, MIB + 1, 3 * MIB - 1, 4 * MIB - 511] {
        let disk = &testkit::pattern(len as u64)[..len];
        let sources = [
            Memory::new(disk.to_vec(), true),
            Memory::new(disk.to_vec(), false),
            Memory::new(gzip(disk), false),
        ];
        for (case, source) in sources.into_iter().enumerate() {
            let Some(device) = LoopDevice::filled_with(0xaa, device_len) else { return };
            let target = Target { preallocate: true, ..target(device.path()) };
            import(&source, &target, &Options::default(), &Arc::new(Progress::default())).unwrap();
            let mut whole = disk.to_vec();
            whole.resize(device_len as usize, 0);
            assert!(device.bytes() == whole, "{len} bytes, source {case}");
        }
    }
}

#[test]
fn a_checksum_is_compared_before_the_disk_gets_its_name() {
    let disk = disk(3 * MIB);
    let mut hasher = Hasher::sha256();
    hasher.update(&disk);
    let checksum = hasher.finish();
    for ranges in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let options = Options { checksum: Some(checksum), ..Options::default() };
        let report = run(&Memory::new(disk.clone(), ranges), &path, &options).unwrap();
        assert_eq!(report.digest, Some(checksum.to_string()));

        fs::remove_file(&path).unwrap();
        let mut other = disk.clone();
        other[2 * MIB] ^= 1;
        let error = run(&Memory::new(other, ranges), &path, &options).unwrap_err();
        assert!(matches!(error, Error::Checksum { .. }), "{error}");
        assert!(nothing_left(directory.path()));
    }
}

#[test]
fn a_failing_read_never_gives_a_disk_and_the_next_try_finishes_it() {
    let disk = disk(40 * MIB);
    let options = Options { checkpoint_every: Duration::ZERO, ..Options::default() };
    // Two readers of runs that take 42 reads each: none is complete after 40 reads, one is after 90, whichever reader is slow.
    for fails_at in [0, 1, 3, 12, 40, 90, 350, 410] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let mut source = Memory::new(disk.clone(), true).failing_at(fails_at);
        source.facts.streams_max = 2;
        let error = run(&source, &path, &options).unwrap_err();
        assert!(matches!(error, Error::Source { .. }), "read {fails_at}: {error}");
        assert!(!path.exists(), "read {fails_at}");

        let report = run(&Memory::new(disk.clone(), true), &path, &options).unwrap();
        assert!(fs::read(&path).unwrap() == disk, "read {fails_at}: the disks differ");
        assert_eq!(report.resumed_at > 0, fails_at >= 90, "read {fails_at}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "something is left");
    }
}

#[test]
fn a_resumed_raw_disk_is_hashed_as_a_whole() {
    let disk = disk(50 * MIB);
    let mut hasher = Hasher::sha256();
    hasher.update(&disk);
    let options = Options {
        checksum: Some(hasher.finish()),
        checkpoint_every: Duration::ZERO,
        ..Options::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    run(&Memory::new(disk.clone(), true).failing_at(400), &path, &options).unwrap_err();
    let report = run(&Memory::new(disk.clone(), true), &path, &options).unwrap();
    assert!(report.resumed_at >= 16 << 20, "{report:?}");
    assert!(fs::read(&path).unwrap() == disk);
}

#[test]
fn a_source_that_changed_meanwhile_is_imported_from_the_start() {
    let (old, new) = (disk(40 * MIB), testkit::pattern(40 << 20));
    let options = Options { checkpoint_every: Duration::ZERO, ..Options::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    run(&Memory::new(old, true).failing_at(380), &path, &options).unwrap_err();
    let mut source = Memory::new(new.clone(), true);
    source.facts.validator = Some("two".into());
    let report = run(&source, &path, &options).unwrap();
    assert_eq!(report.resumed_at, 0);
    assert!(fs::read(&path).unwrap() == new);
}

#[test]
fn a_disk_that_does_not_fit_is_rejected_and_leaves_nothing() {
    let disk = disk(3 * MIB);
    for (source, early) in [
        (Memory::new(disk.clone(), true), true),
        (Memory::new(disk.clone(), false), true),
        (Memory::new(gzip(&disk), true), false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut target = target(&directory.path().join("disk.img"));
        target.available = Some(ByteCount::new(disk.len() as u64 - 1));
        let progress = Arc::new(Progress::default());
        let error = import(&source, &target, &Options::default(), &progress).unwrap_err();
        assert!(error.to_string().contains("is larger than the reported available"), "{error}");
        assert_eq!(progress.snapshot().read == 0, early, "the body is not fetched");
        assert!(nothing_left(directory.path()));
    }
}

#[test]
fn a_damaged_stream_is_an_error_and_never_a_raw_disk() {
    let whole = gzip(&disk(3 * MIB));
    for cut in [10, 100, whole.len() / 2, whole.len() - 1] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let source = Memory::new(whole[..cut].to_vec(), true);
        let error = run(&source, &path, &Options::default()).unwrap_err();
        assert!(matches!(error, Error::Decode { .. }), "cut at {cut}: {error}");
        assert!(nothing_left(directory.path()), "cut at {cut}");
    }
}

/// What is known and not read: its bytes, and how messages call it.
fn foreign_images() -> Vec<(&'static str, Vec<u8>)> {
    let behind = |magic: &[u8]| [magic, &disk(3 * MIB)[magic.len()..]].concat();
    let mut dmg = disk(3 * MIB);
    let at = dmg.len() - 512;
    dmg[at..at + 12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
    let mut images = vec![
        ("a zip archive", behind(b"PK\x03\x04")),
        ("a 7z archive", behind(b"7z\xbc\xaf\x27\x1c")),
        ("a squashfs file system", behind(b"hsqs")),
        ("a dmg image", dmg),
    ];
    images.extend(testkit::tar(&[("disk.img", &disk(MIB))]).map(|tar| ("a tar archive", tar)));
    images
}

#[test]
fn unsupported_formats_are_rejected_by_name_and_leave_no_disk() {
    for (name, image) in foreign_images() {
        for source in [
            Memory::new(image.clone(), true),
            Memory::new(image.clone(), false),
            Memory::new(gzip(&image), true),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            let error = run(&source, &path, &Options::default()).unwrap_err();
            let Error::Decode { source: refused, .. } = &error else { panic!("{name}: {error}") };
            assert!(
                refused.to_string().starts_with(&format!("the image is {name}, ")),
                "{refused}"
            );
            assert!(nothing_left(directory.path()), "{name}: something is left");
        }
    }
}

#[test]
fn a_source_declared_raw_is_not_decoded() {
    let options = Options { format: SourceFormat::Raw, ..Options::default() };
    let mut images = foreign_images();
    images.push(("gzip", gzip(&disk(MIB))));
    images.push(("qcow2", [b"QFI\xfb", &disk(MIB)[4..]].concat()));
    for (name, image) in images {
        for ranges in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            let report = run(&Memory::new(image.clone(), ranges), &path, &options).unwrap();
            assert_eq!((&*report.format, report.compression.len()), ("raw", 0), "{name}");
            let found = fs::read(&path).unwrap();
            assert_eq!(found.len(), image.len().next_multiple_of(512), "{name}");
            assert!(found.starts_with(&image), "{name}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let nothing = run(&Memory::new(vec![], true), &directory.path().join("disk.img"), &options);
    let empty = formats::Error::Empty { what: "image" };
    assert!(
        matches!(&nothing, Err(Error::Decode { source, .. }) if source.to_string() == empty.to_string()),
        "{nothing:?}"
    );
}

#[test]
fn a_block_larger_than_the_head_is_detected() {
    // Noise, so that the first block of 900 kB and the first one of 4 MiB are as long on the wire.
    let disk = testkit::SparseDisk::new(9 * MIB as u64)
        .with(0, 9 * MIB as u64, testkit::Fill::Random(3))
        .bytes();
    for how in [Compressor::BZIP2, Compressor::LZ4] {
        let Some(stream) = compress(how, &disk) else { continue };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let report = run(&Memory::new(stream, false), &path, &Options::default()).unwrap();
        assert_eq!(report.compression, [how.program]);
        assert!(fs::read(&path).unwrap() == disk, "{}", how.program);
    }
}

#[test]
fn a_signature_cut_by_the_first_part_of_a_stream_is_found() {
    // The second part is one block longer than the first look, and holds the rest of the signature.
    let noise = testkit::SparseDisk::new(MIB as u64).with(0, MIB as u64, testkit::Fill::Random(3));
    let rest = [b"\x03\x04", &noise.bytes()[..]].concat();
    for how in [Compressor::BZIP2, Compressor::LZ4] {
        let (Some(first), Some(second)) = (compress(how, b"PK"), compress(how, &rest)) else {
            continue;
        };
        let directory = tempfile::tempdir().unwrap();
        let source = Memory::new([first, second].concat(), false);
        let refused = run(&source, &directory.path().join("disk.img"), &Options::default());
        assert!(
            matches!(&refused, Err(Error::Decode { source: formats::Error::Foreign(_), .. })),
            "{}: {refused:?}",
            how.program
        );
    }
}

#[test]
fn a_disk_larger_than_the_free_space_is_imported_where_holes_take_none() {
    let Some(small) = FileSystem::new(FileSystemKind::Tmpfs, 16 << 20) else { return };
    let mut disk = vec![0; 96 * MIB];
    disk[..2 * MIB].copy_from_slice(&testkit::pattern(2 * MIB as u64));
    let path = small.path().join("disk.img");
    let sources = [
        ("ranges", Memory::new(disk.clone(), true)),
        ("in order", Memory::new(disk.clone(), false)),
        ("compressed, of unknown size", Memory::new(gzip(&disk), false)),
    ];
    for (case, source) in sources {
        let refused = run(&source, &path, &Options::default()).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { .. }), "{case}: {refused}");
        let progress = Arc::new(Progress::default());
        let options = Options { file_space: FileSpace::Data, ..Options::default() };
        import(&source, &target(&path), &options, &progress).unwrap();
        assert!(fs::read(&path).unwrap() == disk, "{case}");
        // These sources do not report holes. Without a known size there is nothing to compare.
        let warnings = progress.take_warnings();
        let expected = usize::from(!case.starts_with("compressed"));
        assert_eq!(warnings.len(), expected, "{case}: {warnings:?}");
        fs::remove_file(&path).unwrap();
    }
    let preallocate = Target { preallocate: true, ..target(&path) };
    let options = Options { file_space: FileSpace::Data, ..Options::default() };
    let source = Memory::new(disk, true);
    let refused = import(&source, &preallocate, &options, &Arc::default()).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "no holes there: {refused}");
}

#[test]
fn an_empty_disk_may_be_larger_than_the_free_space_where_holes_take_none() {
    let Some(small) = FileSystem::new(FileSystemKind::Tmpfs, 16 << 20) else { return };
    let path = small.path().join("disk.img");
    let size = ByteCount::mebibytes(64);
    let table = [
        ("the whole disk has to fit", FileSpace::WholeDisk, false, false),
        ("only its data has to fit", FileSpace::Data, false, true),
        ("a preallocated disk has no holes", FileSpace::Data, true, false),
    ];
    for (case, file_space, preallocate, fits) in table {
        let target = Target { preallocate, ..target(&path) };
        match pipeline::blank(size, &target, file_space, &Arc::default()) {
            Ok(report) => {
                assert!(fits, "{case}");
                assert_eq!(report.virtual_size, size.get(), "{case}");
                assert_eq!(fs::metadata(&path).unwrap().len(), size.get(), "{case}");
                fs::remove_file(&path).unwrap();
            }
            Err(error) => {
                assert!(matches!(error, Error::TooLarge { .. }) && !fits, "{case}: {error}")
            }
        }
    }
    let limited = Target { available: Some(ByteCount::mebibytes(32)), ..target(&path) };
    let refused = pipeline::blank(size, &limited, FileSpace::Data, &Arc::default());
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "the limit of the volume holds");
}

#[test]
fn an_empty_disk_on_a_device_shows_nothing_of_the_last_one() {
    let len = 130 * MIB as u64; // more than two pieces
    for preallocate in [false, true] {
        let Some(device) = LoopDevice::filled_with(0xa5, len) else { return };
        let target = Target { preallocate, ..target(device.path()) };
        let progress = Arc::new(Progress::default());
        let report =
            pipeline::blank(ByteCount::new(len), &target, FileSpace::WholeDisk, &progress).unwrap();
        assert!(device.bytes().iter().all(|byte| *byte == 0), "{preallocate}: old bytes show");
        assert_eq!((report.virtual_size, report.zero_bytes), (len, len));
        let counted = progress.snapshot();
        assert_eq!((counted.guest, counted.guest_total), (len, Some(len)));
        assert_eq!(counted.written == len, preallocate, "what was written counts as work done");
    }
}

#[test]
fn an_empty_disk_replaces_the_leftovers_of_a_killed_import() {
    let len = 8 * MIB as u64;
    let Some(device) = LoopDevice::filled_with(0xa5, len) else { return };
    // Ends in the middle, and leaves a mark and a part of its data.
    let source = Memory::new(testkit::pattern(len), true).failing_at(40);
    run(&source, device.path(), &Options::default()).unwrap_err();
    assert!(device.bytes().iter().any(|byte| *byte != 0), "it has left something");
    let progress = Arc::new(Progress::default());
    pipeline::blank(ByteCount::new(len), &target(device.path()), FileSpace::WholeDisk, &progress)
        .unwrap();
    assert!(device.bytes().iter().all(|byte| *byte == 0));
}
