//! An upload server of a test: its authorities, its volume, its end.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use auth::{CertificateAuthority, Identity};
use tempfile::TempDir;
use testkit::{RawClient, RawResponse};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uploadserver::{Completed, ServerExit, Settings, serve_upload};

/// The client that may upload.
pub const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
/// The source of a clone, as the controller names it.
pub const CLONE_SOURCE: &str = "images/golden-vms/disk";
/// Headers of an upload.
const HEADERS: &str = "Content-Type: application/octet-stream\r\n";

/// How long a certificate of a test is good.
pub const HOUR: Duration = Duration::from_secs(3600);

/// The end of a good upload.
pub const UPLOADED: ServerExit =
    ServerExit::Complete(Completed { cloned: false, preallocated: false });

/// When a certificate begins.
pub fn now() -> SystemTime {
    SystemTime::now()
}

/// Signs certificates, and what others trust it by.
pub fn authority() -> (CertificateAuthority, String) {
    let kept = CertificateAuthority::create("authority", HOUR, now()).unwrap();
    (CertificateAuthority::from_identity(&kept).unwrap(), kept.certificate)
}

/// A server that runs until its volume is complete or it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub folder: TempDir,
    settings: Settings,
    servers: String,
    clients: CertificateAuthority,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    end: JoinHandle<Result<ServerExit, uploadserver::Error>>,
}

impl Server {
    /// The target is a file in a temporary directory.
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    /// With other settings.
    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), |folder| {
            let mut settings = Settings::from_environment(&Default::default()).unwrap();
            std::fs::create_dir(folder.join("data")).unwrap();
            settings.destination = folder.join("data/disk.img");
            change(&mut settings);
            settings
        })
    }

    /// For a clone: only the pod that reads its source may send.
    pub fn of_clone() -> Self {
        Self::of_clone_with(|_| ())
    }

    /// The same with other settings.
    pub fn of_clone_with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with(|settings| {
            settings.client_name = CLONE_SOURCE.to_owned();
            change(settings);
        })
    }

    /// Kills the server and starts another one with the same volume.
    pub fn again(mut self) -> Self {
        self.stop();
        assert_eq!(self.runtime.block_on(&mut self.end).unwrap().unwrap(), ServerExit::Stopped);
        drop(self.runtime); // waits for what still writes
        let server = Self::at(self.folder, |_| self.settings);
        server.client().ask("GET", "/", ""); // answered once it serves
        server
    }

    fn at(folder: TempDir, settings: impl FnOnce(&Path) -> Settings) -> Self {
        let mut settings = settings(folder.path());
        let ((server_authority, servers), (clients, client_authority)) = (authority(), authority());
        let names = ["localhost".to_owned()];
        let Identity { certificate, key } = server_authority.server(&names, HOUR, now()).unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        settings.certificate = write("tls.crt", &certificate);
        settings.key = write("tls.key", &key);
        settings.client_ca = write("ca.crt", &client_authority);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = Runtime::new().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let end = runtime.spawn(serve_upload(settings.clone(), listener, async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
        Self { address, folder, settings, servers, clients, runtime, stop: Some(stop), end }
    }

    /// A client with a certificate of the expected CA.
    pub fn client_named(&self, name: &str) -> RawClient {
        self.client_of(&self.clients, name)
    }

    /// A client with a certificate of the given CA.
    pub fn client_of(&self, authority: &CertificateAuthority, name: &str) -> RawClient {
        let Identity { certificate, key } = authority.client(name, HOUR, now()).unwrap();
        RawClient::new(self.address, &self.servers, Some((&certificate, &key)))
    }

    /// The one that may upload.
    pub fn client(&self) -> RawClient {
        self.client_named(&self.settings.client_name)
    }

    /// A client without a certificate, such as a probe.
    pub fn stranger(&self) -> RawClient {
        RawClient::new(self.address, &self.servers, None)
    }

    /// An upload by the one that may.
    pub fn upload(&self, path: &str, body: &[u8]) -> RawResponse {
        self.client().post(path, HEADERS, body)
    }

    /// The finished disk.
    pub fn disk(&self) -> Option<Vec<u8>> {
        std::fs::read(&self.settings.destination).ok()
    }

    /// Names of all files in the volume's directory.
    pub fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The volume's directory.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Sends SIGTERM.
    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// How it ended. Waits for that.
    pub fn end(self) -> ServerExit {
        self.runtime.block_on(self.end).unwrap().unwrap()
    }
}
