//! As much of a cluster as upload proxies use: an API server with one claim that is ready, names, certificates and
//! tokens.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use auth::token::{Claims, ISSUER_API_SERVER, KeyTexts, LIFETIME, SigningKey};
use auth::{CertificateAuthority, Identity};
use serde_json::json;
use testkit::{Stub, StubRequest, StubResponse};

use super::link::SERVER;
use crate::party::Pod;
use crate::work::WorkFolder;

const NAMESPACE: &str = "bench";
const CLAIM: &str = "disk";
/// How the proxy finds the claim's server.
const HOST: &str = "cdi-upload-disk.bench.svc";
const CLIENT: &str = "client.upload-server.cdi.kubevirt.io";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How often to look whether the upload server has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The addresses of proxy and server.
pub const PORT: u16 = 8443;

/// The cluster. Its API server listens until the process ends.
pub struct Cluster {
    key: SigningKey,
    public_key: String,
    /// Certificates and keys, by party: `proxy`, `client`, `server`.
    identities: PathBuf,
    kubeconfig: PathBuf,
    hosts: PathBuf,
    /// Clients of nginx trust the same.
    pub proxy: Identity,
}

impl Cluster {
    /// Creates it, with its files in `work`.
    ///
    /// # Errors
    /// When something cannot be made.
    pub fn start(work: &WorkFolder) -> Result<Self> {
        let now = SystemTime::now();
        let make = |name: &str| -> Result<(CertificateAuthority, String)> {
            let kept = CertificateAuthority::create(name, DAY, now)?;
            Ok((CertificateAuthority::from_identity(&kept)?, kept.certificate))
        };
        let ((proxies, trusted), (servers, known)) = (make("proxies")?, make("servers")?);
        let (clients, believed) = make("clients")?;
        let proxy = proxies.server(&["localhost".to_owned()], DAY, now)?;
        let client = clients.client(CLIENT, DAY, now)?;
        let server = servers.server(&[HOST.to_owned()], DAY, now)?;
        let identities = work.path().join("identities");
        std::fs::create_dir_all(&identities).context("cannot make a folder")?;
        for (name, identity) in [("proxy", &proxy), ("client", &client), ("server", &server)] {
            work.file(&format!("identities/{name}.crt"), &identity.certificate)?;
            work.file(&format!("identities/{name}.key"), &identity.key)?;
        }
        work.file("identities/proxy.pem", &trusted)?;
        work.file("identities/clients.pem", &believed)?;
        let stub = Stub::start(move |asked| answer(asked, &known));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{ "name": "bench", "cluster": { "server": stub.url("") } }],
            "users": [{ "name": "bench", "user": { "token": "bench" } }],
            "contexts": [{ "name": "bench", "context": {
                "cluster": "bench", "user": "bench", "namespace": "cdi",
            } }],
        });
        let texts = KeyTexts::generate().context("cannot make a key")?;
        Ok(Self {
            key: SigningKey::from_pem(texts.private.as_bytes())?,
            public_key: texts.public.clone(),
            identities,
            kubeconfig: work.file("kubeconfig", &config.to_string())?,
            hosts: work.file("hosts", &format!("127.0.0.1 localhost\n{SERVER} {HOST}\n"))?,
            proxy,
        })
    }

    /// Those that a client trusts.
    pub fn trusted(&self) -> PathBuf {
        self.identities.join("proxy.pem")
    }

    /// The right to upload, from now on for some minutes.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn token(&self) -> Result<String> {
        let claims = Claims::upload(NAMESPACE, CLAIM);
        let token = self.key.sign(&claims, ISSUER_API_SERVER, LIFETIME, SystemTime::now());
        token.context("cannot sign a token")
    }

    /// An upload proxy, ours or another.
    pub fn proxy_pod(&self, root: &Path, program: &Path) -> Pod {
        let mut pod = Pod::new(root, program)
            .mount(&self.identities, "/identities")
            .mount(&self.kubeconfig, "/tmp/kubeconfig")
            .mount(&self.hosts, "/etc/hosts")
            .with("APISERVER_PUBLIC_KEY", &self.public_key)
            .with("SERVER_CERT_FILE", "/identities/proxy.crt")
            .with("SERVER_KEY_FILE", "/identities/proxy.key")
            .with("UPLOAD_CLIENT_CERT_FILE", "/identities/client.crt")
            .with("UPLOAD_CLIENT_KEY_FILE", "/identities/client.key")
            .with("HEALTH_PORT", "0"); // the port is another's here
        pod.words = vec!["-kubeconfig=/tmp/kubeconfig".into(), "-v=1".into()];
        pod
    }

    /// An upload server, ours or another, without its volume.
    pub fn server_pod(&self, root: &Path, program: &Path, size: u64) -> Pod {
        Pod::upload_server(root, program, &self.identities, CLIENT, size)
            .with("LISTEN_PORT", PORT.to_string())
    }
}

/// What `cdi upload` calls the claim.
pub fn claim() -> String {
    format!("{NAMESPACE}/{CLAIM}")
}

/// The end of an upload server is recorded in its claim at once; the kubelet and the controller of a cluster take seconds.
fn pvc(is_uploaded: bool) -> serde_json::Value {
    let phase = if is_uploaded { "Succeeded" } else { "Running" };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": CLAIM, "namespace": NAMESPACE, "uid": "bench", "resourceVersion": "1",
            "annotations": {
                "cdi.kubevirt.io/storage.upload.target": "",
                "cdi.kubevirt.io/storage.contentType": "kubevirt",
                "cdi.kubevirt.io/storage.pod.phase": phase,
                "cdi.kubevirt.io/storage.pod.ready": (!is_uploaded).to_string(),
            },
        },
    })
}

/// An upload server ends with its upload.
fn server_listens() -> bool {
    TcpStream::connect((SERVER, PORT)).is_ok()
}

fn answer(asked: &StubRequest, authorities: &str) -> StubResponse {
    let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
    let json = |value: serde_json::Value| {
        StubResponse::new(200, value.to_string()).with("content-type", "application/json")
    };
    if query.contains("watch") {
        if path == "/api/v1/namespaces/bench/persistentvolumeclaims" {
            while server_listens() {
                thread::sleep(POLL_INTERVAL);
            }
            return json(json!({ "type": "MODIFIED", "object": pvc(true) }));
        }
        // Nothing else ever changes. A watch that ended at once would be repeated at once.
        thread::sleep(DAY);
        return StubResponse::new(200, "").with("content-type", "application/json");
    }
    let config = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
        "metadata": { "name": "config", "resourceVersion": "1" }, "spec": {}, "status": {},
    });
    match path {
        "/api/v1/namespaces/bench/persistentvolumeclaims/disk" => json(pvc(!server_listens())),
        "/api/v1/namespaces/cdi/configmaps/cdi-uploadserver-signer-bundle" => json(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "cdi-uploadserver-signer-bundle", "namespace": "cdi" },
            "data": { "ca-bundle.crt": authorities },
        })),
        "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config" => json(config),
        "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs" => json(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfigList",
            "metadata": { "resourceVersion": "1" }, "items": [config],
        })),
        _ => StubResponse::new(404, json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404,
        }).to_string()).with("content-type", "application/json"),
    }
}
