//! A proxy, a fake cluster, and upload servers.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use auth::token::{Claims, ISSUER_API_SERVER, KeyTexts, LIFETIME, SigningKey};
use auth::{CertificateAuthority, Identity, TlsMinimum};
use tempfile::TempDir;
use testkit::RawClient;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use uploadproxy::{ClusterApi, ClusterError, Settings, TargetPvc};
use uploadserver::ServerExit;

pub const NAMESPACE: &str = "ns";
const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
const HOUR: Duration = Duration::from_secs(3600);

// Annotations of PVCs.
pub const TARGET: (&str, &str) = ("cdi.kubevirt.io/storage.upload.target", "");
pub const READY: (&str, &str) = ("cdi.kubevirt.io/storage.pod.ready", "true");
pub const DONE: (&str, &str) = ("cdi.kubevirt.io/storage.pod.phase", "Succeeded");
pub const CONTENT: &str = "cdi.kubevirt.io/storage.contentType";
pub const PRIME: &str = "cdi.kubevirt.io/storage.populator.pvcPrime";

#[derive(Clone)]
pub struct FakeCluster(Arc<State>);

struct State {
    claims: Mutex<BTreeMap<String, TargetPvc>>,
    /// How often they have changed.
    changes: watch::Sender<u64>,
    upload_server_cas: Mutex<String>,
    addresses: Mutex<BTreeMap<String, SocketAddr>>,
    tls_minimum: watch::Sender<TlsMinimum>,
    /// The end of each upload server is recorded in its PVC, as by the controller.
    records_ends: AtomicBool,
}

impl State {
    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, TargetPvc>)) {
        change(&mut self.claims.lock().unwrap());
        self.changes.send_modify(|count| *count += 1);
    }

    /// What the controller does when an upload server has ended.
    fn record_end(&self, service: &str) {
        let is_of = |claim: &&mut TargetPvc| {
            api::names::label_value(&api::names::upload_server(&claim.name)) == service
        };
        self.change(|claims| {
            for claim in claims.values_mut().filter(is_of) {
                claim.annotations.insert(DONE.0.into(), DONE.1.into());
            }
        });
    }
}

impl ClusterApi for FakeCluster {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<TargetPvc>, ClusterError> {
        let version = self.0.changes.borrow().to_string();
        let found = self.0.claims.lock().unwrap().get(name).cloned();
        let found = found.filter(|claim| claim.namespace == namespace);
        Ok(found.map(|claim| TargetPvc { version, ..claim }))
    }

    async fn changed(&self, claim: &TargetPvc) {
        let mut changes = self.0.changes.subscribe();
        changes.wait_for(|count| count.to_string() != claim.version).await.unwrap();
    }

    async fn upload_server_cas(&self) -> Result<String, ClusterError> {
        Ok(self.0.upload_server_cas.lock().unwrap().clone())
    }

    fn tls_minimum(&self) -> watch::Receiver<TlsMinimum> {
        self.0.tls_minimum.subscribe()
    }

    fn address(&self, host: &str) -> String {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        self.0.addresses.lock().unwrap().get(host).unwrap_or(&nowhere).to_string()
    }
}

pub struct TestCluster {
    pub address: SocketAddr,
    pub folder: TempDir,
    pub trusted: String,
    pub key: SigningKey,
    cluster: FakeCluster,
    servers: CertificateAuthority,
    clients: String,
    runtime: Runtime,
}

/// An upload server, and the volume that it fills.
pub struct Server {
    pub data: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    end: JoinHandle<Result<ServerExit, uploadserver::Error>>,
}

impl Server {
    pub fn disk(&self) -> Option<Vec<u8>> {
        std::fs::read(self.data.join("disk.img")).ok()
    }

    /// As a lost node would. Nothing is served any more when it returns.
    pub fn kill(mut self, world: &TestCluster) {
        let _ = self.stop.take().unwrap().send(());
        assert_eq!(world.end(self), ServerExit::Stopped);
    }
}

fn ca() -> (CertificateAuthority, String) {
    let kept = CertificateAuthority::create("authority", HOUR, SystemTime::now()).unwrap();
    (CertificateAuthority::from_identity(&kept).unwrap(), kept.certificate)
}

fn write(folder: &Path, name: &str, identity: &Identity) -> (PathBuf, PathBuf) {
    let (certificate, key) =
        (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, &identity.certificate).unwrap();
    std::fs::write(&key, &identity.key).unwrap();
    (certificate, key)
}

impl TestCluster {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ((proxies, trusted), (servers, known)) = (ca(), ca());
        let (client_authority, clients) = ca();
        let texts = KeyTexts::generate().unwrap();
        let variables = BTreeMap::from([("APISERVER_PUBLIC_KEY".to_owned(), texts.public)]);
        let mut settings = Settings::from_environment(&variables).unwrap();
        let now = SystemTime::now();
        let hosts = ["localhost", "upload.test", "cdi-uploadproxy.cdi.svc"].map(str::to_owned);
        let identity = proxies.server(&hosts, HOUR, now).unwrap();
        (settings.certificate, settings.key) = write(folder.path(), "proxy", &identity);
        let identity = client_authority.client(CLIENT, HOUR, now).unwrap();
        (settings.client_certificate, settings.client_key) =
            write(folder.path(), "client", &identity);
        settings.server_patience = Duration::ZERO;
        change(&mut settings);
        let cluster = FakeCluster(Arc::new(State {
            claims: Mutex::default(),
            changes: watch::channel(0).0,
            upload_server_cas: Mutex::new(known),
            addresses: Mutex::default(),
            tls_minimum: watch::channel(TlsMinimum::default()).0,
            records_ends: AtomicBool::new(true),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = Runtime::new().unwrap();
        let never = std::future::pending::<()>();
        runtime.spawn(uploadproxy::run(settings, cluster.clone(), listener, never));
        let key = SigningKey::from_pem(texts.private.as_bytes()).unwrap();
        Self { address, folder, trusted, key, cluster, servers, clients, runtime }
    }

    /// Sets the state of a PVC.
    pub fn set_pvc(&self, name: &str, is_populated: bool, annotations: &[(&str, &str)]) {
        let annotations =
            annotations.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let claim = TargetPvc {
            namespace: NAMESPACE.into(),
            name: name.into(),
            annotations,
            is_populated,
            ..TargetPvc::default()
        };
        self.cluster.0.change(|claims| {
            claims.insert(name.into(), claim);
        });
    }

    pub fn delete_pvc(&self, name: &str) {
        self.cluster.0.change(|claims| {
            claims.remove(name);
        });
    }

    /// Whether the controller runs, which records the ends of upload servers.
    pub fn set_controller(&self, runs: bool) {
        self.cluster.0.records_ends.store(runs, Ordering::SeqCst);
    }

    /// Makes certificates and CAs unusable.
    pub fn remove_certificates(&self) {
        std::fs::write(self.folder.path().join("client.crt"), "nothing").unwrap();
        "nothing".clone_into(&mut self.cluster.0.upload_server_cas.lock().unwrap());
    }

    pub fn set_tls_minimum(&self, tls_minimum: TlsMinimum) {
        self.cluster.0.tls_minimum.send_replace(tls_minimum);
    }

    /// The upload server of a PVC.
    pub fn server(&self, claim: &str, change: impl FnOnce(&mut uploadserver::Settings)) -> Server {
        let service = format!("cdi-upload-{claim}");
        let host = format!("{service}.{NAMESPACE}.svc");
        let folder = self.folder.path().join(claim);
        let data = folder.join("data");
        std::fs::create_dir_all(&data).unwrap();
        let identity =
            self.servers.server(std::slice::from_ref(&host), HOUR, SystemTime::now()).unwrap();
        let mut settings = uploadserver::Settings::from_environment(&BTreeMap::new()).unwrap();
        (settings.certificate, settings.key) = write(&folder, "server", &identity);
        settings.client_ca = folder.join("ca.crt");
        std::fs::write(&settings.client_ca, &self.clients).unwrap();
        settings.destination = data.join("disk.img");
        change(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.cluster.0.addresses.lock().unwrap().insert(host, address);
        let (stop, stopped) = oneshot::channel::<()>();
        let cluster = Arc::clone(&self.cluster.0);
        let end = self.runtime.spawn(async move {
            let stop = async {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let end = uploadserver::serve_upload(settings, listener, stop).await;
            let records = cluster.records_ends.load(Ordering::SeqCst);
            if records && matches!(end, Ok(ServerExit::Complete(_))) {
                cluster.record_end(&service);
            }
            end
        });
        Server { data, stop: Some(stop), end }
    }

    /// Directs uploads for `to` to the server of `from`.
    pub fn redirect_server(&self, from: &str, to: &str) {
        let host = |claim| format!("cdi-upload-{claim}.{NAMESPACE}.svc");
        let mut addresses = self.cluster.0.addresses.lock().unwrap();
        let address = addresses[&host(from)];
        addresses.insert(host(to), address);
    }

    /// Moves the server of a PVC to `address`. Returns its previous address.
    pub fn relocate(&self, claim: &str, address: SocketAddr) -> SocketAddr {
        let host = format!("cdi-upload-{claim}.{NAMESPACE}.svc");
        let before = self.cluster.0.addresses.lock().unwrap().insert(host, address);
        before.unwrap()
    }

    /// The same, and makes the PVC ready.
    pub fn ready(&self, claim: &str) -> Server {
        self.set_pvc(claim, false, &[TARGET, READY]);
        self.server(claim, |_| ())
    }

    /// Returns once the server of that token's PVC has begun an upload.
    pub fn wait_until_busy(&self, token: &str) {
        while self.client().post("/v1beta1/upload-form", token, b"").status != 503 {}
    }

    /// Waits for the end of a server.
    pub fn end(&self, server: Server) -> ServerExit {
        self.runtime.block_on(server.end).unwrap().unwrap()
    }

    pub fn client(&self) -> RawClient {
        RawClient::new(self.address, &self.trusted, None)
    }

    pub fn sign(&self, claims: &Claims, at: SystemTime) -> String {
        let token = self.key.sign(claims, ISSUER_API_SERVER, LIFETIME, at).unwrap();
        format!("Authorization: Bearer {token}\r\n")
    }

    /// The header line with a good token for a PVC.
    pub fn token(&self, claim: &str) -> String {
        self.sign(&Claims::upload(NAMESPACE, claim), SystemTime::now())
    }
}
