//! Imports that are killed and run again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testkit::{
    Fault, FaultServer, Fill, Image, MIB, Qcow2Options, QemuImg, Random, SparseDisk, arguments,
};
use tests::{Import, Kind, LIMIT, Target, report};

const LEN: u64 = 72 * MIB;

fn disk() -> SparseDisk {
    // Some 60 MiB of data: several units of work for the journal.
    SparseDisk::new(LEN)
        .with(0, 30 * MIB, Fill::Pattern)
        .with(34 * MIB, 20 * MIB, Fill::Random(1))
        .with(56 * MIB, 15 * MIB, Fill::Pattern)
}

fn qcow2(how: Qcow2Options) -> Option<Vec<u8>> {
    Some(QemuImg::require()?.qcow2(&disk(), &how).bytes())
}

/// A journal that can be had on any kind of target, and a checkpoint after every unit of work.
fn import(server: &FaultServer, target: &Target) -> Import {
    Import::new(server.url(), target.path())
        .option("--journal", journal(target))
        .option("--checkpoint-every", "0s")
}

fn journal(target: &Target) -> PathBuf {
    target.folder().join("journal")
}

/// Imports until the body stands still at byte `at` of the image and the journal names something, then kills.
fn kill_at(at: u64, server: FaultServer, target: &Target) -> FaultServer {
    let server = server.always(Fault::StallAt(at));
    let running = import(&server, target).start();
    server.wait_for_stall(LIMIT);
    wait_for(&journal(target));
    let killed = running.kill();
    assert_eq!(killed.status.code(), None, "{killed:?}");
    server.heal();
    server
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} never appears", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn resumed_at(report: &serde_json::Value) -> u64 {
    report["resumedAt"].as_u64().expect("a number")
}

fn goes_on(wire: &[u8], case: &str) {
    for kind in [Kind::File, Kind::Device] {
        let Some(target) = Target::new(kind, LEN) else { continue };
        let server = kill_at(wire.len() as u64 * 7 / 8, FaultServer::in_memory(wire), &target);
        target.expect_unfinished(&disk().bytes(), case);
        let before = server.body_bytes_sent();
        let report = import(&server, &target).report();
        assert!(resumed_at(&report) > 0, "{case} to {kind:?}: {report}");
        assert!(server.body_bytes_sent() - before < wire.len() as u64, "{case} to {kind:?}");
        target.expect(&disk().bytes(), &format!("{case} to {kind:?}"));
    }
}

#[test]
fn raw_import_resumes_at_the_end_of_durable_data() {
    goes_on(&disk().bytes(), "raw");
}

#[test]
fn qcow2_import_resumes_at_the_end_of_durable_data() {
    let Some(wire) = qcow2(Qcow2Options::default()) else { return };
    goes_on(&wire, "qcow2");
}

#[test]
fn compressed_qcow2_import_resumes_at_the_end_of_durable_data() {
    // Random bytes do not get smaller: enough wire for several units.
    let Some(wire) = qcow2(Qcow2Options { compressed: true, ..Qcow2Options::default() }) else {
        return;
    };
    goes_on(&wire, "qcow2 -c");
}

#[test]
fn resumed_import_has_the_right_digest() {
    let wire = disk().bytes();
    let target = Target::file();
    let server = FaultServer::in_memory(&wire).always(Fault::StallAt(LEN * 7 / 8));
    let running = import(&server, &target).flag("--digest").start();
    server.wait_for_stall(LIMIT);
    wait_for(&journal(&target));
    running.kill();
    server.heal();
    let report = import(&server, &target).flag("--digest").report();
    assert!(resumed_at(&report) > 0, "{report}");
    target.expect(&wire, "hashed");
    let whole = Target::file();
    let again = Import::new(server.url(), whole.path()).flag("--digest").report();
    assert_eq!(report["digest"], again["digest"]);
}

/// One pass over a full disk with two snapshots of other content: by the time of the kill, clusters are parked behind it.
#[test]
fn a_disk_killed_while_clusters_are_parked_behind_it_never_gets_its_name() {
    const SIZE: u64 = 6 * MIB;
    let Some(qemu) = QemuImg::require() else { return };
    let how = Qcow2Options { cluster_bits: 21, ..Qcow2Options::default() };
    let image = qemu.qcow2(&SparseDisk::new(SIZE), &how);
    for byte in [1, 2, 3] {
        qemu.qemu_io(image.path(), &[&format!("write -P {byte} 0 6M")]);
        qemu.run(arguments!["snapshot", "-c", byte.to_string(), image.path()]);
    }
    let (wire, disk) = (image.bytes(), vec![3; SIZE as usize]);
    for target in [Some(Target::file()), Target::device(SIZE + 16 * MIB)].into_iter().flatten() {
        let server = FaultServer::in_memory(&wire).always(Fault::StallAt(28 * MIB));
        // The digest is calculated in order, so the image is read once. With so little memory no cluster stays there.
        let import = || {
            let import = Import::new(server.url(), target.path()).option("--memory", "4Mi");
            import.option("--journal", journal(&target)).flag("--digest")
        };
        let running = import().start();
        server.wait_for_stall(LIMIT);
        let partial = target.folder().join(".disk.img.cdi-partial");
        let deadline = Instant::now() + LIMIT;
        while partial.exists() && std::fs::metadata(&partial).unwrap().len() <= SIZE {
            assert!(Instant::now() < deadline, "nothing is parked behind the disk");
            std::thread::sleep(Duration::from_millis(5));
        }
        running.kill();
        target.expect_unfinished(&disk, "killed");
        server.heal();
        let report = import().report();
        assert_eq!((&report["route"], resumed_at(&report)), (&"one pass".into(), 0));
        assert_eq!(report["scratchBytes"], 0);
        target.expect(&disk, "again");
    }
}

#[test]
fn file_import_resumes_with_the_default_journal() {
    let wire = disk().bytes();
    let target = Target::file();
    let server = FaultServer::in_memory(&wire).always(Fault::StallAt(LEN * 7 / 8));
    let import = || Import::new(server.url(), target.path()).option("--checkpoint-every", "0s");
    let running = import().start();
    server.wait_for_stall(LIMIT);
    wait_for(&target.folder().join(".disk.img.cdi-journal"));
    running.kill();
    server.heal();
    assert!(resumed_at(&import().report()) > 0);
    target.expect(&wire, "journal next to the file");
}

#[test]
fn changed_source_starts_again() {
    let target = Target::file();
    let server = kill_at(LEN * 7 / 8, FaultServer::in_memory(&disk().bytes()), &target);
    let other = SparseDisk::mixed(LEN, 5).bytes();
    server.replace(&other);
    assert_eq!(resumed_at(&import(&server, &target).report()), 0);
    target.expect(&other, "the other image");
}

#[test]
fn journal_of_another_image_is_discarded() {
    let target = Target::file();
    drop(kill_at(LEN * 7 / 8, FaultServer::in_memory(&disk().bytes()), &target));
    // Same length, same ETag even, under another address.
    let other = SparseDisk::mixed(LEN, 6).bytes();
    let server = FaultServer::in_memory(&other);
    assert_eq!(resumed_at(&import(&server, &target).report()), 0);
    target.expect(&other, "the other image");
}

#[test]
fn damaged_journal_or_target_starts_again() {
    let wire = disk().bytes();
    let damages: [fn(&Target); 3] = [
        |target| std::fs::write(journal(target), b"{\"version\":1").unwrap(),
        |target| std::fs::remove_file(target.folder().join(".disk.img.cdi-partial")).unwrap(),
        |target| std::fs::write(target.folder().join(".disk.img.cdi-partial"), b"short").unwrap(),
    ];
    for damage in damages {
        let target = Target::file();
        let server = kill_at(LEN * 7 / 8, FaultServer::in_memory(&wire), &target);
        damage(&target);
        assert_eq!(resumed_at(&import(&server, &target).report()), 0);
        target.expect(&wire, "started again");
    }
}

#[test]
fn no_resume_starts_again() {
    let wire = disk().bytes();
    let target = Target::file();
    let server = kill_at(LEN * 7 / 8, FaultServer::in_memory(&wire), &target);
    assert_eq!(resumed_at(&import(&server, &target).flag("--no-resume").report()), 0);
    target.expect(&wire, "started again");
}

#[test]
fn imports_that_cannot_resume_start_again() {
    let Some(wire) = testkit::compress(testkit::Compressor::ZSTD, &disk().bytes()) else { return };
    for kind in [Kind::File, Kind::Device] {
        let Some(target) = Target::new(kind, LEN) else { continue };
        let server = FaultServer::in_memory(&wire).always(Fault::StallAt(wire.len() as u64 / 2));
        let running = import(&server, &target).start();
        server.wait_for_stall(LIMIT);
        running.kill();
        target.expect_unfinished(&disk().bytes(), "killed");
        server.heal();
        assert_eq!(resumed_at(&import(&server, &target).report()), 0);
        target.expect(&disk().bytes(), "started again");
    }
}

#[test]
fn local_file_import_resumes() {
    // Slow devices are rare: it may be done before it is killed, and is whole in either case.
    let image = Image::from_bytes(&disk().bytes());
    let target = Target::file();
    let import = || Import::new(image.path(), target.path()).option("--checkpoint-every", "0s");
    let running = import().start();
    let deadline = Instant::now() + LIMIT;
    let partial = target.folder().join(".disk.img.cdi-journal");
    while !partial.exists() && !target.path().exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    running.kill();
    import().report();
    target.expect(&disk().bytes(), "a local file");
}

#[test]
fn disk_is_complete_after_any_number_of_kills() {
    let Some(compressed) = qcow2(Qcow2Options { compressed: true, ..Qcow2Options::default() })
    else {
        return;
    };
    let wires = [disk().bytes(), qcow2(Qcow2Options::default()).unwrap_or_default(), compressed];
    let cases: Vec<_> =
        wires.iter().flat_map(|wire| [(wire, Kind::File), (wire, Kind::Device)]).collect();
    crate::each(&cases, |(wire, kind)| {
        let Some(target) = Target::new(*kind, LEN) else { return };
        let server = FaultServer::in_memory(wire).always(Fault::SlowDown(40 * MIB));
        let mut random = Random::new(wire.len() as u64);
        let mut kills = 0;
        let finished = loop {
            let running = import(&server, &target).start();
            let until = server.body_bytes_sent() + random.below(wire.len() as u64 / 3);
            let deadline = Instant::now() + Duration::from_secs(10);
            while kills < 4 && server.body_bytes_sent() < until && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            let finished = if kills < 4 { running.kill() } else { running.wait(LIMIT) };
            // It may have been faster than the kill.
            if finished.status.code().is_some() {
                break finished;
            }
            target.expect_unfinished(&disk().bytes(), "killed");
            kills += 1;
        };
        report(&finished.expect_success());
        target.expect(&disk().bytes(), "after many kills");
    });
}
