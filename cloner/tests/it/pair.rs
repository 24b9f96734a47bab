//! Our two ends of a clone, over TLS: whatever the volumes are, one understands the other.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use auth::{Authority, Identity};
use cloner::{Mode, Peer, Progress, Retries, Volume, send};
use tempfile::TempDir;
use testkit::{Fill, LoopDevice, SparseDisk};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use uploadserver::{Completed, End, Settings, run};

const MIB: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
/// The pod that reads, as the controller names it.
const CLIENT: &str = "images/golden-vms/disk";

struct Server {
    peer: Peer,
    runtime: Runtime,
    end: JoinHandle<Result<End, uploadserver::Error>>,
    _folder: TempDir,
}

impl Server {
    fn beside(destination: &Path) -> Self {
        let now = SystemTime::now();
        let make = |name: &str| {
            let kept = Authority::make(name, HOUR, now).unwrap();
            (Authority::read(&kept).unwrap(), kept.certificate)
        };
        let (servers, authority) = make("servers");
        let (clients, client_authority) = make("clients");
        let names = ["localhost".to_owned()];
        let Identity { certificate, key } = servers.server(&names, HOUR, now).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut settings = Settings::from_environment(&Default::default()).unwrap();
        settings.certificate = write("tls.crt", &certificate);
        settings.key = write("tls.key", &key);
        settings.client_authority = write("ca.crt", &client_authority);
        settings.client_name = CLIENT.to_owned();
        settings.destination = destination.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("https://localhost:{port}/v1beta1/upload").parse().unwrap();
        let client = clients.client(CLIENT, HOUR, now).unwrap();
        let peer = Peer::new(&url, &client.certificate, &client.key, &authority).unwrap();
        let runtime = Runtime::new().unwrap();
        let end = runtime.spawn(run(settings, listener, std::future::pending()));
        Self { peer, runtime, end, _folder: folder }
    }

    /// Sends a volume, and waits for the server's end.
    fn take(self, volume: &Volume) -> End {
        let retries = Retries::default();
        send(volume, false, "uid", &self.peer, retries, &Progress::default()).unwrap();
        self.runtime.block_on(self.end).unwrap().unwrap()
    }
}

fn disk() -> SparseDisk {
    SparseDisk::new(8 * MIB)
        .with(0, 70_000, Fill::Text(1))
        .with(3 * MIB, MIB, Fill::Random(2))
        .with(5 * MIB, 300_000, Fill::Pattern)
}

fn cloned(preallocated: bool) -> End {
    End::Complete(Completed { cloned: true, preallocated })
}

/// The same disk, as all of a device and as a file of a volume.
fn sources() -> (TempDir, [Volume; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    disk().write_to(&tree.join("disk.img"));
    let volumes = [
        Volume::open(&tree.join("disk.img"), Mode::Block).unwrap(),
        Volume::open(&tree, Mode::Filesystem).unwrap(),
    ];
    (folder, volumes)
}

#[test]
fn a_device_gets_the_disk_of_whatever_volume() {
    let (_folder, volumes) = sources();
    for volume in &volumes {
        let Some(device) = LoopDevice::filled_with(0xa5, 8 * MIB) else { return };
        let server = Server::beside(device.path());
        assert_eq!(server.take(volume), cloned(false));
        assert!(device.bytes() == disk().bytes());
    }
}

#[test]
fn a_folder_gets_the_disk_of_whatever_volume() {
    let (_folder, volumes) = sources();
    for (volume, preallocated) in volumes.iter().zip([false, true]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let server = Server::beside(&path);
        assert_eq!(server.take(volume), cloned(preallocated));
        assert!(std::fs::read(&path).unwrap() == disk().bytes());
    }
}
