//! Peak memory stays within `--memory` and the documented overhead.

use testkit::{
    Cgroup, Compressor, FaultServer, Fill, GIB, Image, MIB, Pieces, Qcow2Options, QemuImg,
    SparseDisk, compress,
};
use tests::{Import, LIMIT, Target};

/// The budget, and the overhead of the process.
const PEAK_MAX: u64 = 64 * MIB;

/// Blocks of xz are decoded whole.
const PEAK_MAX_XZ_BLOCKS: u64 = 128 * MIB;

fn disk() -> SparseDisk {
    SparseDisk::new(160 * MIB)
        .with(0, 40 * MIB, Fill::Text(1))
        .with(60 * MIB, 40 * MIB, Fill::Random(2))
        .with(120 * MIB, 30 * MIB, Fill::Pattern)
}

#[test]
fn peak_memory_of_every_import_is_bounded() {
    let raw = disk().bytes();
    let blocks = Compressor { program: "xz", level: 0, pieces: Pieces::Blocks(8 * MIB) };
    let qcow2 = |compressed, zstd| {
        let how = Qcow2Options { compressed, zstd, ..Qcow2Options::default() };
        Some(QemuImg::require()?.qcow2(&disk(), &how).bytes())
    };
    let plain = qcow2(false, false);
    let gz = plain.as_ref().and_then(|bytes| compress(Compressor::GZIP.level(1), bytes));
    let cases = [
        ("raw", Some(raw.clone()), PEAK_MAX),
        ("raw.gz", compress(Compressor::GZIP.level(1), &raw), PEAK_MAX),
        ("raw.xz", compress(Compressor::XZ.level(0), &raw), PEAK_MAX),
        ("raw.xz, blocks", compress(blocks, &raw), PEAK_MAX_XZ_BLOCKS),
        ("raw.zst", compress(Compressor::ZSTD.level(1), &raw), PEAK_MAX),
        ("raw.bz2", compress(Compressor::BZIP2, &raw), PEAK_MAX),
        ("raw.lz4", compress(Compressor::LZ4, &raw), PEAK_MAX),
        ("qcow2", plain, PEAK_MAX),
        ("qcow2 -c", qcow2(true, false), PEAK_MAX),
        ("qcow2 -c zstd", qcow2(true, true), PEAK_MAX),
        ("qcow2.gz", gz, PEAK_MAX),
    ];
    for (case, wire, peak_max) in cases {
        let Some(wire) = wire else { continue };
        let target = Target::file();
        let server = FaultServer::in_memory(&wire);
        let finished = Import::new(server.url(), target.path()).run().expect_success();
        eprintln!("{case}: {} MiB, {:?} of CPU", finished.peak_rss / MIB, finished.cpu);
        assert!(finished.peak_rss <= peak_max, "{case}: {} bytes", finished.peak_rss);
        target.expect(&raw, case);
    }
}

#[test]
fn smaller_memory_budget_is_respected() {
    let raw = disk().bytes();
    let Some(wire) = compress(Compressor::ZSTD.level(1), &raw) else { return };
    for (case, bytes) in [("raw", &raw), ("raw.zst", &wire)] {
        let target = Target::file();
        let server = FaultServer::in_memory(bytes);
        let import = Import::new(server.url(), target.path()).option("--memory", "8Mi");
        let finished = import.run().expect_success();
        assert!(finished.peak_rss <= 48 * MIB, "{case}: {} bytes", finished.peak_rss);
        target.expect(&raw, case);
    }
}

#[test]
fn default_pod_limits_suffice() {
    // As much again as the limit: page cache that is not written back would hit it.
    let disk = SparseDisk::new(GIB).with(0, GIB, Fill::Random(5));
    let image = Image::from_bytes(&[]);
    disk.write_to(image.path());
    let Some(group) = Cgroup::new(600_000_000, 750) else { return };
    let target = Target::file();
    let command = Import::new(image.path(), target.path()).command();
    let Some(mut enclosed) = group.enclose(&command) else { return };
    testkit::process::run(&mut enclosed, LIMIT).expect_success();
    assert_eq!(group.out_of_memory_kills(), 0);
    let Some(cmp) = testkit::require_tool("cmp") else { return };
    cmp.run([image.path(), target.path()]);
}
