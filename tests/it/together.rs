//! Concurrent imports, and imports that are stopped.

use std::time::{Duration, Instant};

use testkit::{Fault, FaultServer, Fill, MIB, SparseDisk};
use tests::{Import, Kind, LIMIT, Target};

#[test]
fn concurrent_imports_to_one_target_do_not_mix() {
    for kind in [Kind::File, Kind::Device] {
        let (first, second) =
            (SparseDisk::mixed(8 * MIB, 1).bytes(), SparseDisk::mixed(8 * MIB, 2).bytes());
        let Some(target) = Target::new(kind, 8 * MIB) else { continue };
        let slow = FaultServer::in_memory(&first).once(Fault::StallAt(6 * MIB));
        let running = Import::new(slow.url(), target.path()).start();
        slow.wait_for_stall(LIMIT);
        let other = FaultServer::in_memory(&second);
        let message = Import::new(other.url(), target.path()).refusal();
        let words = ["another import is writing it", "in use"];
        assert!(words.iter().any(|words| message.contains(words)), "{kind:?}: {message}");
        slow.heal();
        running.wait(LIMIT).expect_success();
        target.expect(&first, &format!("{kind:?}"));
    }
}

#[test]
fn concurrent_imports_to_different_targets_succeed() {
    let numbers: Vec<u64> = (0..6).collect();
    crate::each(&numbers, |number| {
        let disk = SparseDisk::mixed(8 * MIB, *number).bytes();
        let kind = if number.is_multiple_of(2) { Kind::File } else { Kind::Device };
        let Some(target) = Target::new(kind, 8 * MIB) else { return };
        let server = FaultServer::in_memory(&disk);
        Import::new(server.url(), target.path()).report();
        target.expect(&disk, &format!("number {number}"));
    });
}

#[test]
fn stopped_import_resumes() {
    let disk = SparseDisk::new(72 * MIB).with(0, 70 * MIB, Fill::Pattern).bytes();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let target = Target::file();
        let server = FaultServer::in_memory(&disk).always(Fault::StallAt(64 * MIB));
        let import = || Import::new(server.url(), target.path()).option("--checkpoint-every", "0s");
        let running = import().start();
        server.wait_for_stall(LIMIT);
        let journal = target.folder().join(".disk.img.cdi-journal");
        let deadline = Instant::now() + LIMIT;
        while !journal.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        running.signal(signal);
        let finished = running.wait(LIMIT);
        assert!(!finished.success(), "{finished:?}");
        target.expect_unfinished(&disk, "stopped");
        server.heal();
        let report = import().report();
        assert!(report["resumedAt"].as_u64().expect("a number") > 0, "{report}");
        target.expect(&disk, "gone on");
    }
}
