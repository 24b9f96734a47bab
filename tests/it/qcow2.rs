//! Images of qemu-img are read as qemu-img reads them, by ranges and in one pass.

use proptest::prelude::*;
use testkit::{Compressor, FaultServer, Image, MIB, QemuImg, compress, qcow2_options, sparse_disk};
use tests::{Import, Target};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn qcow2_reads_as_qemu_img_reads_it(disk in sparse_disk(6 * MIB), how in qcow2_options()) {
        let Some(qemu) = QemuImg::require() else { return Ok(()) };
        let image = qemu.qcow2(&disk, &how);
        let expected = qemu.to_raw(image.path(), "qcow2");
        let gz = compress(Compressor::GZIP.level(1), &image.bytes()).map(|bytes| Image::from_bytes(&bytes));
        let server = FaultServer::in_memory(&image.bytes());
        let scratch = tempfile::tempdir().unwrap();
        for route in ["file", "http", "stdin", "gzip"] {
            let target = Target::file();
            let import = match (route, &gz) {
                ("file", _) => Import::new(image.path(), target.path()),
                ("http", _) => Import::new(server.url(), target.path()),
                ("stdin", _) => Import::from_stdin(image.path(), target.path()),
                (_, Some(gz)) => Import::new(gz.path(), target.path()),
                (_, None) => continue,
            };
            // So little memory that clusters have to be parked in the target.
            let finished = import.option("--memory", "1Mi").option("--scratch", scratch.path()).run();
            if route == "stdin" && finished.stderr.contains("needs scratch space") {
                // Clusters too scattered for the index in so little memory, or used twice, and a pipe can be read once.
                let message = finished.expect_refusal();
                prop_assert!(!message.contains("precede their tables"), "{message}");
                prop_assert!(message.contains("standard input can be read only once"), "{message}");
                continue;
            }
            prop_assert!(finished.success(), "{route}: {}", finished.stderr);
            let found = std::fs::read(target.path()).unwrap();
            prop_assert!(found == expected, "{route}: {} and {} bytes", found.len(), expected.len());
        }
    }
}

/// The same to a device full of old bytes: parked bytes never remain on it.
#[test]
fn parked_bytes_do_not_survive_on_a_device() {
    use testkit::{Change, Qcow2Options, SparseDisk};
    let Some(qemu) = QemuImg::require() else { return };
    let disk = SparseDisk::mixed(16 * MIB, 21);
    let histories: [&[Change]; 3] = [
        &[Change::Snapshot, Change::Write { at: 0, len: 500, byte: 7 }, Change::Snapshot],
        &[
            Change::Write { at: 100, len: 300, byte: 1 },
            Change::Grow(150),
            Change::Write { at: 900, len: 100, byte: 2 },
        ],
        &[
            Change::Snapshot,
            Change::Zero { at: 0, len: 1000 },
            Change::Write { at: 3, len: 9, byte: 3 },
        ],
    ];
    for history in histories {
        for (compressed, cluster_bits) in [(false, 16), (true, 16), (false, 12)] {
            let how = Qcow2Options {
                compressed,
                cluster_bits,
                history: history.into(),
                ..Qcow2Options::default()
            };
            let image = qemu.qcow2(&disk, &how);
            let expected = qemu.to_raw(image.path(), "qcow2");
            let Some(target) = Target::device(expected.len() as u64 + MIB) else { return };
            let scratch = tempfile::tempdir().unwrap();
            Import::from_stdin(image.path(), target.path())
                .option("--memory", "1Mi")
                .option("--scratch", scratch.path())
                .report();
            target.expect(&expected, &format!("{how:?}"));
        }
    }
}
