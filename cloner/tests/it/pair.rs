//! Our cloner and our upload server, over TLS: every pair of volumes, and interruptions.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use auth::{CertificateAuthority, Identity};
use cloner::{Error, Progress, RetryPolicy, SourceVolume, UploadServer, send};
use contract::clone::{ClientIdentity, VolumeMode};
use tempfile::TempDir;
use testkit::{FileSystem, FileSystemKind, Fill, LoopDevice, SparseDisk};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use uploadserver::{Completed, ServerExit, Settings, serve_upload};

use crate::relay::Relay;

const MIB: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
/// The pod that reads, as the controller names it.
const CLIENT: &str = "images/golden-vms/disk";
/// Enough retries for a server that is still busy with the interrupted connection.
const RETRIES: RetryPolicy = RetryPolicy {
    retries_max: 10_000,
    delay_min: Duration::from_millis(5),
    delay_max: Duration::from_millis(20),
};

struct Server {
    upload_server: UploadServer,
    relay: Relay,
    runtime: Runtime,
    end: JoinHandle<Result<ServerExit, uploadserver::Error>>,
    _folder: TempDir,
}

impl Server {
    fn start(destination: &Path) -> Self {
        Self::behind(destination, false, Vec::new())
    }

    /// Behind a network that breaks its first connections.
    fn behind(destination: &Path, preallocate: bool, breaks: Vec<u64>) -> Self {
        let now = SystemTime::now();
        let make = |name: &str| {
            let kept = CertificateAuthority::create(name, HOUR, now).unwrap();
            (CertificateAuthority::from_identity(&kept).unwrap(), kept.certificate)
        };
        let (servers, authority) = make("servers");
        let (clients, client_authority) = make("clients");
        let names = ["localhost".to_owned()];
        let Identity { certificate, key } = servers.server(&names, HOUR, now).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut settings = Settings::from_environment(&Default::default()).unwrap();
        settings.certificate = write("tls.crt", &certificate);
        settings.key = write("tls.key", &key);
        settings.client_ca = write("ca.crt", &client_authority);
        settings.client_name = CLIENT.to_owned();
        settings.destination = destination.to_owned();
        settings.preallocate = preallocate;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::to(listener.local_addr().unwrap().port(), breaks);
        let url = format!("https://localhost:{}/v1beta1/upload", relay.port).parse().unwrap();
        let client = clients.client(CLIENT, HOUR, now).unwrap();
        let identity = ClientIdentity { certificate: client.certificate, key: client.key };
        let upload_server = UploadServer::new(&url, &identity, &authority).unwrap();
        let runtime = Runtime::new().unwrap();
        let end = runtime.spawn(serve_upload(settings, listener, std::future::pending()));
        Self { upload_server, relay, runtime, end, _folder: directory }
    }

    fn send(&self, volume: &SourceVolume, preallocate: bool) -> Result<(), Error> {
        send(volume, preallocate, "uid", &self.upload_server, RETRIES, &Progress::default())
    }

    /// Sends a volume, and waits for the server's end. Returns it, and how many bytes went over the network.
    fn take(self, volume: &SourceVolume) -> (ServerExit, u64) {
        self.send(volume, false).unwrap();
        let end = self.runtime.block_on(self.end).unwrap().unwrap();
        (end, self.relay.sent())
    }
}

/// 8 MiB, a quarter of it data.
fn disk() -> SparseDisk {
    SparseDisk::new(8 * MIB)
        .with(0, 70_000, Fill::Text(1))
        .with(3 * MIB, MIB, Fill::Random(2))
        .with(5 * MIB, 900_000, Fill::Pattern)
}

/// The same disk, as all of a device and as a file of a volume.
fn sources() -> (TempDir, [SourceVolume; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    disk().write_to(&tree.join("disk.img"));
    let volumes = [
        SourceVolume::open(&tree.join("disk.img"), VolumeMode::Block).unwrap(),
        SourceVolume::open(&tree, VolumeMode::Filesystem).unwrap(),
    ];
    (directory, volumes)
}

enum Target {
    Device(LoopDevice),
    File(TempDir),
}

impl Target {
    fn both() -> Option<[Self; 2]> {
        let device = LoopDevice::filled_with(0xa5, 8 * MIB)?;
        Some([Self::Device(device), Self::File(tempfile::tempdir().unwrap())])
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Device(device) => device.path().to_owned(),
            Self::File(directory) => directory.path().join("disk.img"),
        }
    }

    fn expect(&self, case: &str) {
        match self {
            Self::Device(device) => assert!(device.bytes() == disk().bytes(), "{case}"),
            Self::File(directory) => {
                assert!(std::fs::read(self.path()).unwrap() == disk().bytes(), "{case}");
                let names: Vec<_> =
                    std::fs::read_dir(directory).unwrap().map(Result::unwrap).collect();
                assert_eq!(names.len(), 1, "{case}: {names:?}");
                let allocated = self.path().metadata().unwrap().blocks() * 512;
                assert!(allocated < 3 * MIB, "{case}: holes stay holes, and not {allocated} bytes");
            }
        }
    }
}

#[test]
fn every_pair_of_volumes_sends_little_more_than_the_data() {
    let (_folder, volumes) = sources();
    for (from, volume) in volumes.iter().enumerate() {
        let Some(targets) = Target::both() else { return };
        for (to, target) in targets.iter().enumerate() {
            let (end, sent) = Server::start(&target.path()).take(volume);
            // By contract, a clone from files to files is called so.
            let preallocated = (from, to) == (1, 1);
            assert_eq!(end, ServerExit::Complete(Completed { cloned: true, preallocated }));
            target.expect(&format!("{from} to {to}"));
            // A MiB that cannot be compressed, 1 MiB that can, and what TLS adds to it.
            assert!(sent < 3 * MIB / 2, "{from} to {to}: {sent} bytes");
        }
    }
}

#[test]
fn every_pair_of_volumes_resumes_after_interruptions() {
    let (_folder, volumes) = sources();
    let breaks = [1, 700, 2100, 4000, 9000, 40_000, 80_000, 600_000, 1_150_000, 1_200_000];
    for (from, volume) in volumes.iter().enumerate() {
        for at in breaks {
            let Some(targets) = Target::both() else { return };
            for target in targets {
                // The first request may break as well as the body.
                let server = Server::behind(&target.path(), false, vec![u64::MAX, at, 300, at]);
                let (_, sent) = server.take(volume);
                target.expect(&format!("{from}, broken at {at}"));
                // Once so much has come that most of it is durable, it is not sent again.
                assert!(at < MIB || sent < 2 * MIB, "{from}, broken at {at}: {sent} bytes");
            }
        }
    }
}

#[test]
fn tree_is_cloned_over_interrupted_connections() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    std::fs::create_dir_all(at("folder/deeper")).unwrap();
    for number in 0..200 {
        std::fs::write(at(&format!("folder/{number:03}")), vec![number as u8; 7 * number]).unwrap();
    }
    disk().write_to(&at("folder/deeper/large"));
    std::fs::hard_link(at("folder/007"), at("twin")).unwrap();
    std::os::unix::fs::symlink("/nowhere", at("away")).unwrap();
    let volume = SourceVolume::open(source.path(), VolumeMode::Filesystem).unwrap();
    for breaks in [vec![], vec![u64::MAX, 20_000, u64::MAX, 30_000, 2500, 500_000]] {
        let target = tempfile::tempdir().unwrap();
        Server::behind(&target.path().join("disk.img"), false, breaks).take(&volume);
        let copied = |name: &str| target.path().join(name);
        for number in 0..200 {
            let name = format!("folder/{number:03}");
            assert_eq!(std::fs::read(copied(&name)).unwrap(), vec![number as u8; 7 * number]);
        }
        assert!(std::fs::read(copied("folder/deeper/large")).unwrap() == disk().bytes());
        let allocated = copied("folder/deeper/large").metadata().unwrap().blocks() * 512;
        assert!(allocated < 3 * MIB, "{allocated}");
        assert_eq!(std::fs::read_link(copied("away")).unwrap(), Path::new("/nowhere"));
        let number = |name: &str| copied(name).metadata().unwrap().ino();
        assert_eq!(number("twin"), number("folder/007"));
        assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 3);
    }
}

#[test]
fn preallocated_targets_have_all_blocks() {
    let (_folder, volumes) = sources();
    for volume in &volumes {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let server = Server::behind(&path, true, Vec::new());
        server.send(volume, true).unwrap();
        assert!(std::fs::read(&path).unwrap() == disk().bytes());
        assert!(path.metadata().unwrap().blocks() * 512 >= 8 * MIB);
    }
}

#[test]
fn too_small_target_is_rejected_and_stays_empty() {
    let source = tempfile::tempdir().unwrap();
    SparseDisk::new(40 * MIB)
        .with(0, 36 * MIB, Fill::Random(3))
        .write_to(&source.path().join("disk.img"));
    let Some(target) = FileSystem::new(FileSystemKind::Ext4, 24 * MIB) else { return };
    let Some(device) = LoopDevice::filled_with(0, 24 * MIB) else { return };
    for mode in [VolumeMode::Block, VolumeMode::Filesystem] {
        let path = match mode {
            VolumeMode::Block => source.path().join("disk.img"),
            VolumeMode::Filesystem => source.path().to_owned(),
        };
        let volume = SourceVolume::open(&path, mode).unwrap();
        for destination in [target.path().join("disk.img"), device.path().to_owned()] {
            let error = Server::start(&destination).send(&volume, false).unwrap_err();
            // A connection that is closed may be seen before the response, which the next attempt then gets.
            assert!(matches!(error, Error::Status { status: 400, .. }), "{error:?}");
        }
        let left: Vec<_> =
            std::fs::read_dir(target.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, ["lost+found"]);
    }
}
