//! How much work an import does for each MiB of its disk: system calls, copies and allocations. Unlike wall time, these
//! figures are the same on every machine. A figure that exceeds its bound has a cause in a change
//! of the code: find it, or raise the bound with the reason. No other test may run in this process.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod sys;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use importer::FileSource;
use pipeline::io_counters::IoCounters;
use pipeline::{Options, Progress, Target, import};
use testkit::{Compressor, Fill, Image, MIB, QemuImg, SparseDisk, compress};

#[global_allocator]
static ALLOCATOR: sys::CountingAllocator = sys::CountingAllocator;

/// Large enough that what each import does once counts little.
const DISK: u64 = 64 * MIB;

/// For each MiB of the disk, measured, or at most.
#[derive(Clone, Copy, Debug)]
struct WorkPerMebibyte {
    system_calls: f64,
    /// Bytes copied, as a share of the disk's bytes.
    copied: f64,
    allocations: f64,
}

/// Where the file system has no direct I/O: a write for each receive buffer of 256 KiB instead of one for four of them,
/// and three calls for each 4 MiB that are written back.
const BUFFERED_CALLS: f64 = 4.0;

/// What each thread of the worker pool allocates, with its decoder and its buffer: measured 11 to 25 times.
const ALLOCATIONS_PER_WORKER: u64 = 25;

/// Bounds are about a tenth above what was measured with direct I/O on 1 and 2 cores.
const RAW: WorkPerMebibyte = WorkPerMebibyte {
    // 9.2: for each 256 KiB a read and a look whether the file has changed (8), advice for each 4 MiB (0.25), and one
    // write of four receive buffers (1).
    system_calls: 10.1,
    // 0: data is written from the buffers that received it.
    copied: 0.01,
    // 8.5: for each 256 KiB the owner of its bytes (4), for each MiB the job's list of writes and the two lists of pieces
    // for its system call (3), and the receive buffers and all else that is allocated once (1.5).
    allocations: 9.3,
};
const QCOW2: WorkPerMebibyte = WorkPerMebibyte {
    // 9.3: as raw, and the tables.
    system_calls: 10.2,
    // 0.001: only the tables.
    copied: 0.01,
    // 8.5 to 8.9: as raw, and the lists of what the tables map.
    allocations: 9.8,
};
const QCOW2_ZLIB: WorkPerMebibyte = WorkPerMebibyte {
    // 2.6: reads of what is stored, which is 0.17 of the disk (1.4), and one write of 16 decoded clusters (1).
    system_calls: 2.9,
    // 0.17: what is stored is collected in the buffers of the jobs. Versions of zlib store a little more or less.
    copied: 0.2,
    // 3.1 to 3.3: fewer chunks of the source (0.75), for each buffer of stored clusters a job and its list (1), and what
    // is allocated once (1.4).
    allocations: 3.8,
};
const RAW_GZ: WorkPerMebibyte = WorkPerMebibyte {
    // 2.9: reads of what is stored, which is 0.23 of the disk (1.9), and one write for each MiB. On several cores 3.3: the
    // content of a chunk ends inside of a MiB.
    system_calls: 3.7,
    // 0: the decoder writes into the buffer of the job. On several cores what is stored is collected in chunks, and the first
    // eighth of each is copied to the chunk before.
    copied: 0.25,
    // 7.8 to 8.1: tables for each block of the deflate stream (4.5), chunks of the source (1), for each MiB a shared buffer
    // and a list of its parts (2), and what is allocated once. Versions of gzip choose other blocks. On several cores 15.1:
    // for each chunk, of which there is one for 2 MiB, its memory, two decoders, their histories and three queues.
    allocations: 17.0,
};
const RAW_ZST: WorkPerMebibyte = WorkPerMebibyte {
    // 2.6: reads of what is stored (1.6), and one write for each MiB.
    system_calls: 2.9,
    // 0: the decoder writes into the buffer of the job.
    copied: 0.01,
    // 3.2 to 3.3: for each MiB a shared buffer and a list of its parts (2), chunks of the source, and what is allocated once.
    allocations: 3.8,
};
const QCOW2_GZ: WorkPerMebibyte = WorkPerMebibyte {
    // 2.9 to 3.3: as raw.gz. The tables come first, so nothing is parked.
    system_calls: 3.7,
    // 0 to 0.23: as raw.gz; clusters are written from the buffer that the decoder filled.
    copied: 0.25,
    // 8.3 to 15.3: as raw.gz, and what is expected of each table.
    allocations: 17.4,
};

impl WorkPerMebibyte {
    fn of_import(image: &Path, directory: &Path) -> Self {
        let path = directory.join("disk.img");
        let target = Target { path, available: None, grow_to: None, preallocate: false };
        let (io, allocations) = (IoCounters::now(), sys::allocations());
        let source = FileSource::open(image).unwrap();
        import(&source, &target, &Options::default(), &Arc::new(Progress::default())).unwrap();
        let (io, allocations) = (IoCounters::now().since(io), sys::allocations() - allocations);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = (cores + 4).min(16) as u64;
        let allocations = allocations.saturating_sub(workers * ALLOCATIONS_PER_WORKER);
        let mebibytes = (DISK / MIB) as f64;
        Self {
            system_calls: io.system_calls as f64 / mebibytes,
            copied: io.bytes_copied as f64 / DISK as f64,
            allocations: allocations as f64 / mebibytes,
        }
    }

    /// Which figures of this exceed those of `bounds`.
    fn excess(&self, bounds: &Self) -> Vec<&'static str> {
        let figures = [
            ("system calls", self.system_calls, bounds.system_calls),
            ("bytes copied", self.copied, bounds.copied),
            ("allocations", self.allocations, bounds.allocations),
        ];
        let excess = figures.into_iter().filter(|(_, measured, bound)| measured > bound);
        excess.map(|(name, ..)| name).collect()
    }
}

fn has_direct_io(directory: &Path) -> bool {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).custom_flags(flags).open(directory.join("probe")).is_ok()
}

#[test]
fn work_per_mebibyte_stays_within_the_recorded_bounds() {
    let raw = SparseDisk::new(DISK).with(0, DISK, Fill::Text(1)).bytes();
    let raw_image = Image::from_bytes(&raw);
    let qemu = QemuImg::require();
    let convert = |arguments: &[&str]| {
        let qemu = qemu.as_ref()?;
        Some(qemu.convert(raw_image.path(), "raw", "qcow2", arguments))
    };
    let compressed =
        |how: Compressor, bytes: &[u8]| compress(how, bytes).map(|bytes| Image::from_bytes(&bytes));
    let gzip = |bytes: &[u8]| compressed(Compressor::GZIP.level(1), bytes);
    let plain = convert(&[]);
    let qcow2_gz = plain.as_ref().and_then(|image| gzip(&image.bytes()));
    let directory = tempfile::tempdir().unwrap();
    let buffered = if has_direct_io(directory.path()) { 0.0 } else { BUFFERED_CALLS };
    for (case, image, bounds) in [
        ("raw", Some(&raw_image), RAW),
        ("qcow2", plain.as_ref(), QCOW2),
        ("qcow2 zlib", convert(&["-c"]).as_ref(), QCOW2_ZLIB),
        ("raw.gz", gzip(&raw).as_ref(), RAW_GZ),
        ("raw.zst", compressed(Compressor::ZSTD, &raw).as_ref(), RAW_ZST),
        ("qcow2.gz", qcow2_gz.as_ref(), QCOW2_GZ),
    ] {
        let Some(image) = image else { continue };
        let work = WorkPerMebibyte::of_import(image.path(), directory.path());
        eprintln!("{case}: {work:.3?}");
        let bounds = WorkPerMebibyte { system_calls: bounds.system_calls + buffered, ..bounds };
        let excess = work.excess(&bounds);
        assert!(excess.is_empty(), "{case}: too many {excess:?}: {work:.3?}, at most {bounds:?}");
        let written = std::fs::read(directory.path().join("disk.img")).unwrap();
        assert!(written == raw, "{case}: another disk");
    }
}
