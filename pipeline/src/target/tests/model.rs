//! Whatever several threads write, zero and read in whatever pieces, the disk is what a vector would be.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::{TempDir, tempdir, tempdir_in};
use testkit::{FileSystem, FileSystemKind, LoopDevice, require_tool};

use super::*;
use crate::buffer::Pool;
use crate::testing::GARBAGE;

/// Odd, so that the last block is a part of one.
const SIZE: u64 = 3 * MIB + 5 * 512;
const THREADS: usize = 4;

#[derive(Clone, Debug)]
enum Act {
    /// The seed of the bytes, and if memory is aligned.
    Write(u8, bool),
    Zero,
    Read,
    Nothing,
}

/// The disk cut into pieces, and what to do to each, all at about the same time.
type Phase = Vec<(Range<u64>, Act)>;

fn phase() -> impl Strategy<Value = Phase> {
    let cut = (0..=SIZE, prop_oneof![Just(1_u64), Just(512), Just(4096), Just(64 * KIB)], 0..3_u64)
        .prop_map(|(at, unit, more)| (at / unit * unit + more).min(SIZE));
    let act = prop_oneof![
        3 => any::<u8>().prop_map(|seed| Act::Write(seed, true)),
        1 => any::<u8>().prop_map(|seed| Act::Write(seed, false)),
        1 => Just(Act::Zero),
        1 => Just(Act::Read),
        1 => Just(Act::Nothing),
    ];
    vec((cut, act), 1..24).prop_map(|mut pieces| {
        pieces.sort_by_key(|(cut, _)| *cut);
        let ends: Vec<u64> = pieces.iter().skip(1).map(|(cut, _)| *cut).chain([SIZE]).collect();
        pieces.into_iter().zip(ends).map(|((from, act), to)| (from..to, act)).collect()
    })
}

fn pattern(seed: u8, range: &Range<u64>) -> impl Iterator<Item = u8> {
    range.clone().map(move |at| (at as u8).wrapping_mul(31) ^ (at >> 9) as u8 ^ seed)
}

fn run(disk: &Disk, model: &mut [u8], phase: &Phase) {
    let pool = Pool::new(SIZE as usize, THREADS);
    let before: &[u8] = model;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                for (range, act) in phase.iter().skip(thread).step_by(THREADS) {
                    let mut buffer = pool.take();
                    let len = (range.end - range.start) as usize;
                    match act {
                        Act::Write(seed, aligned) => {
                            let shift = if *aligned { 0 } else { 1.min(SIZE as usize - len) };
                            let bytes = &mut buffer[shift..shift + len];
                            bytes
                                .iter_mut()
                                .zip(pattern(*seed, range))
                                .for_each(|(to, from)| *to = from);
                            disk.write_at(range.start, bytes).unwrap();
                        }
                        Act::Zero => disk.zero_at(range.start, len as u64).unwrap(),
                        Act::Read => {
                            disk.read_at(range.start, &mut buffer[..len]).unwrap();
                            let expected = &before[range.start as usize..range.end as usize];
                            assert!(buffer[..len] == *expected, "{range:?}");
                        }
                        Act::Nothing => {}
                    }
                }
            });
        }
    });
    for (range, act) in phase {
        let part = &mut model[range.start as usize..range.end as usize];
        match act {
            Act::Write(seed, _) => {
                part.iter_mut().zip(pattern(*seed, range)).for_each(|(to, from)| *to = from);
            }
            Act::Zero => part.fill(0),
            Act::Read | Act::Nothing => {}
        }
    }
}

fn check(path: &Path, phases: &[Phase], preallocate: bool, features: IoFeatures) -> Vec<u8> {
    let options = DiskOptions { preallocate, ..sparse(SIZE) };
    let disk = Disk::open_with(path, &options, features).unwrap();
    if !disk.starts_zeroed() {
        disk.zero_at(0, SIZE).unwrap();
    }
    let mut model = vec![0; SIZE as usize];
    for phase in phases {
        run(&disk, &mut model, phase);
        let mut read = vec![1; SIZE as usize];
        disk.read_at(0, &mut read).unwrap();
        assert!(read == model);
    }
    disk.finish().unwrap();
    model
}

fn check_file(directory: &Path, phases: &[Phase], preallocate: bool, features: IoFeatures) {
    let path = directory.join("disk.img");
    let model = check(&path, phases, preallocate, features);
    assert!(fs::read(&path).unwrap() == model);
}

fn features() -> impl Strategy<Value = IoFeatures> {
    prop::sample::select(EVERY_WAY.to_vec())
}

/// Each case does hundreds of writes, on real storage.
fn cases() -> ProptestConfig {
    ProptestConfig { cases: 24, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_file_equals_the_model(
        phases in vec(phase(), 1..4),
        preallocate in any::<bool>(),
        features in features(),
    ) {
        // `/dev/shm` is a tmpfs: no storage, and on many kernels no direct I/O.
        let directories: [TempDir; 2] = [tempdir().unwrap(), tempdir_in("/dev/shm").unwrap()];
        for directory in directories {
            check_file(directory.path(), &phases, preallocate, features);
        }
    }

    #[test]
    fn a_device_equals_the_model(
        phases in vec(phase(), 1..4),
        preallocate in any::<bool>(),
        features in features(),
        sector in prop_oneof![Just("512"), Just("4096")],
    ) {
        const LENGTH: u64 = SIZE.next_multiple_of(4096);
        let Some(device) = LoopDevice::filled_with(GARBAGE, LENGTH) else { return Ok(()) };
        let losetup = require_tool("losetup").expect("there is a loop device");
        losetup.run(["--sector-size".as_ref(), sector.as_ref(), device.path().as_os_str()]);
        let mut model = check(device.path(), &phases, preallocate, features);
        model.resize(LENGTH as usize, 0);
        prop_assert!(device.bytes() == model);
    }
}

#[test]
fn file_systems_agree_with_the_model() {
    let kinds = [(FileSystemKind::Ext4, 64 * MIB), (FileSystemKind::Xfs, 320 * MIB)];
    for (kind, len) in kinds {
        let Some(file_system) = FileSystem::new(kind, len) else { return };
        let config = ProptestConfig { failure_persistence: None, ..cases() };
        proptest!(config, |(phases in vec(phase(), 1..4), preallocate in any::<bool>(), features in features())| {
            check_file(file_system.path(), &phases, preallocate, features);
        });
    }
}
