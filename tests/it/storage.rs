//! Storage of every kind below a disk: file systems, network file systems, and devices with small and large sectors. The
//! results are the table of docs/storage-matrix.md; `CDI_BLESS=1` writes it.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testkit::{
    DirectIo, Fault, FaultServer, FileSystem, FileSystemKind, Fill, FullAt, Image, LoopDevice, MIB,
    NetworkFileSystem, NetworkRules, SparseDisk,
};
use tests::{Import, LIMIT, Pod, wires};

use crate::compare_document;

/// A kind of storage.
#[derive(Clone, Copy)]
struct Kind {
    /// As in the table.
    name: &'static str,
    create: Create,
}

#[derive(Clone, Copy)]
enum Create {
    Local(FileSystemKind, u64),
    /// Of this length, where little more than the disk fits.
    NearlyFull(FileSystemKind, u64),
    Network(NetworkRules),
    /// With sectors of so many bytes.
    Device(u32),
}

/// What is mounted or attached, until it is dropped.
enum Storage {
    Local(FileSystem),
    Network(NetworkFileSystem),
    Device(LoopDevice),
}

const NETWORK: NetworkRules = NetworkRules::NFS;

const KINDS: [Kind; 13] = [
    Kind { name: "ext4", create: Create::Local(FileSystemKind::Ext4, 128 * MIB) },
    Kind { name: "XFS", create: Create::Local(FileSystemKind::Xfs, 320 * MIB) },
    Kind { name: "btrfs", create: Create::Local(FileSystemKind::Btrfs, 256 * MIB) },
    Kind { name: "tmpfs", create: Create::Local(FileSystemKind::Tmpfs, 128 * MIB) },
    Kind { name: "ext4, nearly full", create: Create::NearlyFull(FileSystemKind::Ext4, 160 * MIB) },
    Kind { name: "XFS, nearly full", create: Create::NearlyFull(FileSystemKind::Xfs, 320 * MIB) },
    Kind {
        name: "btrfs, nearly full",
        create: Create::NearlyFull(FileSystemKind::Btrfs, 320 * MIB),
    },
    Kind { name: "network file system", create: Create::Network(NETWORK) },
    Kind {
        name: "network file system that opens no file for direct I/O",
        create: Create::Network(NetworkRules { direct_io: DirectIo::RefusedAtOpen, ..NETWORK }),
    },
    Kind {
        name: "network file system that refuses each direct write",
        create: Create::Network(NetworkRules { direct_io: DirectIo::RefusedAtWrite, ..NETWORK }),
    },
    Kind {
        name: "network file system without modes and without fsync of directories",
        create: Create::Network(NetworkRules {
            changes_modes: false,
            syncs_directories: false,
            ..NETWORK
        }),
    },
    Kind { name: "block device, sectors of 512 bytes", create: Create::Device(512) },
    Kind { name: "block device, sectors of 4096 bytes", create: Create::Device(4096) },
];

/// What a nearly full file system has for its own tables, and for the disk's pieces before they have their places.
const MARGIN: u64 = 2 * MIB;

/// Images that reach their target in different ways: large and small pieces, in order and not, with and without their length
/// known in advance.
const WIRES: [&str; 9] = [
    "raw",
    "raw.gz",
    "raw.xz, many blocks",
    "raw.zst",
    "qcow2",
    "qcow2 -c",
    "qcow2, small clusters",
    "qcow2.gz",
    "vmdk, stream",
];

impl Kind {
    /// `None` where it cannot be made: the test is skipped. A device is full of old data, and `len` bytes long.
    fn create(&self, len: u64) -> Option<Storage> {
        Some(match self.create {
            Create::Local(kind, len) => Storage::Local(FileSystem::new(kind, len)?),
            Create::NearlyFull(kind, size) => {
                let storage = FileSystem::new(kind, size)?;
                storage.fill_until(len + MARGIN);
                Storage::Local(storage)
            }
            Create::Network(rules) => Storage::Network(NetworkFileSystem::new(rules)?),
            Create::Device(sector) => {
                let len = len.next_multiple_of(4096);
                Storage::Device(LoopDevice::filled_with(0xaa, len)?.with_sectors_of(sector))
            }
        })
    }
}

impl Storage {
    /// What to import to.
    fn target(&self) -> PathBuf {
        match self {
            Self::Local(storage) => storage.path().join("disk.img"),
            Self::Network(storage) => storage.path().join("disk.img"),
            Self::Device(device) => device.path().to_owned(),
        }
    }

    /// The target holds this disk and nothing else, and nothing but the target is left.
    fn expect(&self, disk: &[u8], case: &str) {
        let target = self.target();
        let found = std::fs::read(&target).unwrap();
        assert!(found.len() >= disk.len(), "{case}: {} bytes", found.len());
        let differs = found.iter().zip(disk).position(|(found, wanted)| found != wanted);
        assert_eq!(differs, None, "{case}: differs from there on");
        assert!(found[disk.len()..].iter().all(|byte| *byte == 0), "{case}: old bytes are left");
        if !self.is_device() {
            assert_eq!(found.len(), disk.len().next_multiple_of(512), "{case}");
            if let Self::Network(storage) = self {
                storage.wait_until_closed(); // deleted files have no name any more
            }
            let names = names(target.parent().unwrap());
            assert_eq!(names, ["disk.img"], "{case}");
        }
    }

    fn is_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// For the next disk where two do not fit. Elsewhere the next one replaces it.
    fn remove_disk_if_nearly_full(&self) {
        if let Self::Local(storage) = self
            && storage.path().join(FileSystem::FILLER).exists()
        {
            std::fs::remove_file(self.target()).unwrap();
        }
    }

    /// Bytes that the file of the disk occupies.
    fn allocated(&self) -> u64 {
        std::fs::metadata(self.target()).unwrap().blocks() * 512
    }
}

/// The files of a directory, without what file systems and [`FileSystem::fill_until`] create.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lost+found" && name != FileSystem::FILLER).collect()
}

#[test]
fn every_storage_gets_the_same_disks() {
    let mut rows = Vec::new();
    for kind in &KINDS {
        let len = wires()[0].disk.len() as u64 + MIB;
        let Some(storage) = kind.create(len) else { return };
        for (index, wire) in wires().iter().filter(|wire| WIRES.contains(&wire.name)).enumerate() {
            let image = Image::from_bytes(&wire.bytes);
            let target = storage.target();
            let import = if index % 2 == 0 {
                Import::new(image.path(), &target)
            } else {
                Import::from_stdin(image.path(), &target)
            };
            import.report();
            storage.expect(&wire.disk, &format!("{} to {}", wire.name, kind.name));
            storage.remove_disk_if_nearly_full();
        }
        rows.push((kind, behaviour(kind)));
    }
    compare_document("storage-matrix.md", &table(&rows));
}

/// What a storage makes of zeroes, and of the wish to allocate everything.
struct Behaviour {
    holes: bool,
    preallocated: bool,
}

fn behaviour(kind: &Kind) -> Option<Behaviour> {
    let disk = SparseDisk::new(24 * MIB).with(5 * MIB, MIB, Fill::Random(7)).bytes();
    let image = Image::from_bytes(&disk);
    let storage = kind.create(disk.len() as u64)?;
    if storage.is_device() {
        return None;
    }
    Import::new(image.path(), &storage.target()).report();
    storage.expect(&disk, kind.name);
    let holes = storage.allocated() < 4 * MIB;
    let mode = std::fs::metadata(storage.target()).unwrap().mode() & 0o777;
    if !matches!(kind.create, Create::Network(rules) if !rules.changes_modes) {
        assert_eq!(mode & 0o007, 0, "{}: {mode:o}: all users can read the disk", kind.name);
    }
    std::fs::remove_file(storage.target()).unwrap();
    Import::new(image.path(), &storage.target()).flag("--preallocate").report();
    storage.expect(&disk, kind.name);
    Some(Behaviour { holes, preallocated: storage.allocated() >= disk.len() as u64 })
}

#[test]
fn killed_import_resumes_on_every_storage() {
    // Several units of work for the journal.
    let disk = SparseDisk::new(72 * MIB).with(0, 60 * MIB, Fill::Random(3)).bytes();
    for kind in &KINDS {
        let Some(storage) = kind.create(disk.len() as u64) else { return };
        let journals = tempfile::tempdir().unwrap();
        let journal = journals.path().join("journal");
        let server = FaultServer::in_memory(&disk).always(Fault::StallAt(54 * MIB));
        let import = || {
            Import::new(server.url(), &storage.target())
                .option("--journal", &journal)
                .option("--checkpoint-every", "0s")
        };
        let running = import().start();
        server.wait_for_stall(LIMIT);
        let deadline = Instant::now() + LIMIT;
        while !journal.exists() {
            assert!(Instant::now() < deadline, "{}: no journal appears", kind.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        running.kill();
        server.heal();
        let report = import().report();
        assert!(report["resumedAt"].as_u64().unwrap() > 0, "{}: {report}", kind.name);
        storage.expect(&disk, kind.name);
    }
}

/// Half of what the disk takes is free. Whatever the route, the reason is named. What cannot be resumed leaves nothing; what can,
/// is resumed once there is space.
#[test]
fn disk_that_does_not_fit_is_refused_and_resumed_once_there_is_space() {
    for (kind, len) in [
        (FileSystemKind::Ext4, 128 * MIB),
        (FileSystemKind::Xfs, 320 * MIB),
        (FileSystemKind::Btrfs, 256 * MIB),
        (FileSystemKind::Tmpfs, 128 * MIB),
    ] {
        let Some(storage) = FileSystem::new(kind, len) else { return };
        let target = storage.path().join("disk.img");
        let wires = || wires().iter().filter(|wire| WIRES.contains(&wire.name));
        let first = wires().next().unwrap();
        Import::new(Image::from_bytes(&first.bytes).path(), &target).report();
        let data = std::fs::metadata(&target).unwrap().blocks() * 512;
        std::fs::remove_file(&target).unwrap();
        storage.fill_until(data / 2);
        for wire in wires() {
            let image = Image::from_bytes(&wire.bytes);
            let message = Import::new(image.path(), &target).refusal();
            let case = format!("{} to {kind:?}: {message}", wire.name);
            let words = message.to_lowercase();
            assert!(words.contains("no space left") || words.contains("too small"), "{case}");
            assert!(!target.exists(), "{case}");
            let left = names(storage.path());
            if ["gz", "xz", "zst"].iter().any(|suffix| wire.name.contains(suffix)) {
                assert_eq!(left, Vec::<String>::new(), "{case}");
            }
            for name in left {
                std::fs::remove_file(storage.path().join(name)).unwrap();
            }
        }
        Import::new(Image::from_bytes(&first.bytes).path(), &target).refusal();
        std::fs::remove_file(storage.path().join(FileSystem::FILLER)).unwrap();
        Import::new(Image::from_bytes(&first.bytes).path(), &target).report();
        assert_eq!(std::fs::read(&target).unwrap(), first.disk, "{kind:?}: after a resumption");
    }
}

#[test]
fn full_server_fails_the_import_whenever_it_reports_it() {
    let disk = SparseDisk::new(24 * MIB).with(0, 24 * MIB, Fill::Random(8)).bytes();
    let Some(wire) = testkit::compress(testkit::Compressor::ZSTD, &disk) else { return };
    let image = Image::from_bytes(&wire);
    for full_at in [FullAt::Write, FullAt::Sync] {
        let rules = NetworkRules { full_at, capacity: 16 * MIB, ..NETWORK };
        let Some(storage) = NetworkFileSystem::new(rules) else { return };
        let target = storage.path().join("disk.img");
        let message = Import::new(image.path(), &target).refusal();
        let message = message.to_lowercase();
        assert!(message.contains("no space left on device"), "{full_at:?}: {message}");
        assert!(!target.exists(), "{full_at:?}");
        assert!(storage.occupied() <= MIB, "{full_at:?}: {}", storage.occupied());
    }
}

#[test]
fn writes_that_a_server_lost_fail_the_import() {
    for wire in wires().iter().filter(|wire| WIRES.contains(&wire.name)) {
        let Some(storage) = NetworkFileSystem::new(NETWORK) else { return };
        storage.lose_writes();
        let image = Image::from_bytes(&wire.bytes);
        let target = storage.path().join("disk.img");
        let message = Import::new(image.path(), &target).refusal();
        assert!(message.contains("Input/output error"), "{}: {message}", wire.name);
        assert!(message.contains("disk.img"), "{}: {message}", wire.name);
        assert!(!target.exists(), "{}", wire.name);
        assert!(storage.occupied() <= MIB, "{}: {}", wire.name, storage.occupied());
    }
    let Some(storage) = NetworkFileSystem::new(NETWORK) else { return };
    let Some(archive) = testkit::tar(&[("data", &[7; 300_000])]) else { return };
    storage.lose_writes();
    let image = Image::from_bytes(&archive);
    let target = storage.path().join("files");
    let message = Import::new(image.path(), &target).flag("--archive").refusal();
    assert!(message.contains("Input/output error"), "{message}");
}

#[test]
fn importer_pod_fills_a_volume_whose_files_belong_to_another_user() {
    for kind in KINDS.iter().filter(|kind| matches!(kind.create, Create::Network(_))) {
        let wire = wires().iter().find(|wire| wire.name == "raw").unwrap();
        let Some(storage) = kind.create(0) else { return };
        let server = FaultServer::in_memory(&wire.bytes);
        let target = storage.target();
        let pod = Pod::without_volume()
            .mounting_directory("data", target.parent().unwrap())
            .variable("IMPORTER_IMAGE_SIZE", "24Mi")
            .variable("FILESYSTEM_OVERHEAD", "0")
            .from_url(&server.url());
        let finished = pod.run();
        assert!(finished.success(), "{}: {finished:?}", kind.name);
        let mut disk = wire.disk.clone();
        disk.resize(24 << 20, 0);
        storage.expect(&disk, kind.name);
    }
}

#[test]
fn archive_is_unpacked_to_a_network_file_system() {
    let Some(archive) = testkit::tar(&[("hostname", b"guest"), ("data", &[7; 300_000])]) else {
        return;
    };
    let image = Image::from_bytes(&archive);
    for kind in KINDS.iter().filter(|kind| matches!(kind.create, Create::Network(_))) {
        let Some(storage) = kind.create(0) else { return };
        let target = storage.target().with_file_name("files");
        Import::new(image.path(), &target).flag("--archive").report();
        assert_eq!(std::fs::read(target.join("hostname")).unwrap(), b"guest", "{}", kind.name);
        assert_eq!(std::fs::read(target.join("data")).unwrap(), [7; 300_000], "{}", kind.name);
    }
}

const HEAD: &str = "\
# What can be written to

Generated by `tests/it/storage.rs`. Its tests import images of each route to each storage and compare the whole target with the
disk, kill an import and resume it, let all run full, and let network file systems lose writes. *Nearly full*: 2 MiB more than
the disk are free. After a change: `CDI_BLESS=1 cargo test -p tests --test it storage`.

The kernels of test machines have no NFS client. Instead, a file system in user space (`testkit/src/network_storage`) has the
rules of NFS with `root_squash`: all files belong to the anonymous user, even for root, no `fallocate`, blocks of 1 MiB, deleted
files that stay while they are open, and errors that only `fsync` or `close` reports. The tests run as root and, in a pod, as user
107.

| Storage | Disk | Zeroes | `--preallocate` |
|---|---|---|---|
";

fn table(rows: &[(&Kind, Option<Behaviour>)]) -> String {
    let mut text = HEAD.to_owned();
    for (kind, behaviour) in rows {
        let (zeroes, preallocated) = match behaviour {
            None => ("discarded or written", "allocated"),
            Some(behaviour) => (
                if behaviour.holes { "holes" } else { "written" },
                if behaviour.preallocated { "all allocated" } else { "not allocated" },
            ),
        };
        let _ = writeln!(text, "| {} | identical | {zeroes} | {preallocated} |", kind.name);
    }
    text
}
