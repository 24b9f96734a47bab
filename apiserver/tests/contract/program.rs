//! The program, with a cluster and certificates of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use auth::{CertificateAuthority, Identity};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::cluster::{AUTHENTICATION, TestCluster};

pub const HOUR: Duration = Duration::from_secs(3600);

/// A test CA.
pub struct Signer {
    pub certificate: String,
    ca: CertificateAuthority,
}

impl Signer {
    pub fn new(name: &str) -> Self {
        let identity = CertificateAuthority::create(name, HOUR, SystemTime::now()).unwrap();
        Self {
            ca: CertificateAuthority::from_identity(&identity).unwrap(),
            certificate: identity.certificate,
        }
    }

    pub fn client(&self, name: &str) -> Identity {
        self.ca.client(name, HOUR, SystemTime::now()).unwrap()
    }
}

/// A port that is free on all addresses, and below those that the kernel gives to clients: another test's connection would
/// take it before the program listens.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(101).wrapping_add(tried);
        let port = u16::try_from(12_000 + number % 20_000).unwrap();
        if TcpListener::bind(("::", port)).is_ok() {
            return port;
        }
    }
}

pub struct Program {
    pub cluster: TestCluster,
    pub address: SocketAddr,
    /// Where probes are answered.
    pub probes: SocketAddr,
    /// The CA of the program.
    pub signer: Signer,
    /// The CA of the front proxy.
    pub front: Signer,
    child: Child,
    folder: TempDir,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts it, and waits until it serves.
    pub async fn start() -> Self {
        Self::start_with_objects(|_| ()).await
    }

    /// In a cluster that has objects, so that it has listed them all when it serves its first call.
    pub async fn start_with_objects(set: impl FnOnce(&TestCluster)) -> Self {
        let front = Signer::new("front-proxy-ca");
        let cluster = TestCluster::start().await;
        cluster.set(AUTHENTICATION, authentication(&front));
        set(&cluster);
        Self::start_with(cluster, front).await
    }

    pub async fn start_with(cluster: TestCluster, front: Signer) -> Self {
        Self::start_with_flags(cluster, front, |_| vec![]).await
    }

    /// With flags, for which it may write files to a directory.
    pub async fn start_with_flags(
        cluster: TestCluster,
        front: Signer,
        flags: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::new("cdi-apiserver-signer");
        let host = ["localhost".to_owned()];
        let server = signer.ca.server(&host, HOUR, SystemTime::now()).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let kubeconfig = file("kubeconfig", &kubeconfig(&cluster));
        let [address, probes] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let child = Command::new(env!("CARGO_BIN_EXE_cdi-apiserver"))
            .arg("-v=3")
            .arg(format!("-kubeconfig={}", Path::display(&kubeconfig)))
            .args(flags(folder.path()))
            .env("SERVER_CERT_FILE", file("tls.crt", &server.certificate))
            .env("SERVER_KEY_FILE", file("tls.key", &server.key))
            .env("LISTEN_ADDRESS", "127.0.0.1")
            .env("LISTEN_PORT", address.port().to_string())
            .env("HEALTH_PORT", probes.port().to_string())
            .env("INSTALLER_PART_OF_LABEL", "testing")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut program = Self { cluster, address, probes, signer, front, child, folder };
        program.wait().await;
        program
    }

    async fn wait(&mut self) {
        for _ in 0..600 {
            assert_eq!(self.child.try_wait().unwrap(), None, "the program ended");
            if let Ok(response) = self.client(None).try_get("/healthz").await {
                assert_eq!((response.status.as_u16(), response.body.as_str()), (200, "OK"));
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the program does not serve");
    }

    /// A client with this certificate, or none.
    pub fn client(&self, identity: Option<&Identity>) -> Client {
        Client::new(self.address, &self.signer.certificate, identity, rustls::ALL_VERSIONS)
    }

    /// The cluster's API server.
    pub fn front_proxy(&self) -> Client {
        self.client(Some(&self.front.client("front-proxy")))
    }

    /// Bytes of memory that it had at most.
    pub fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
    }

    /// A file in the directory of its certificates.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Sends an AdmissionReview, and returns its `response`.
    pub async fn admit(&self, path: &str, request: Value) -> Value {
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let response = self.client(None).post(path, &review.to_string()).await;
        assert_eq!(response.status, 200, "{}", response.body);
        let review: Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!(review["response"]["uid"], request["uid"]);
        review["response"].clone()
    }

    /// Of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM, and returns the exit code.
    pub async fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        for _ in 0..600 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the program does not stop");
    }
}

/// The front-proxy ConfigMap of a cluster.
pub fn authentication(front: &Signer) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "namespace": "kube-system" },
        "data": {
            "requestheader-client-ca-file": front.certificate,
            "requestheader-allowed-names": r#"["front-proxy"]"#,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        },
    })
}

fn kubeconfig(cluster: &TestCluster) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": format!("http://{}", cluster.address) } }],
        "users": [{ "name": "test", "user": {} }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "cdi" } }],
    })
    .to_string()
}
