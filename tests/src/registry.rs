//! Registries: Debian's, and a fake with scripted responses.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use testkit::{ReservedPort, Running, ServerCertificate, require_tool};

use crate::container::{Blob, ContainerImage, digest};

/// How Debian's registry is set up.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Speaks TLS with this.
    pub tls: Option<ServerCertificate>,
    /// Wants the user `anna` with the password `open sesame`.
    pub basic_auth: bool,
}

/// `anna` and `open sesame`, by bcrypt.
const HTPASSWD: &str = "anna:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";

/// Debian's registry, on a port of loopback.
#[derive(Debug)]
pub struct DockerRegistry {
    port: ReservedPort,
    _process: Running,
    _folder: TempDir,
}

impl DockerRegistry {
    /// Starts it with what is stored in `storage`. `None`, with a message, if it is missing.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(storage: &Path, setup: &Setup) -> Option<Self> {
        let tool = require_tool("docker-registry")?;
        let folder = TempDir::with_prefix("cdi-registry-").expect("cannot make a folder");
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("cannot write a file");
            path
        };
        let port = ReservedPort::new();
        let mut config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http:\n  addr: 127.0.0.1:{}\n",
            storage.display(),
            port.number()
        );
        if let Some(tls) = &setup.tls {
            let certificate = write("server.crt", &tls.certificate);
            let key = write("server.key", &tls.key);
            config += &format!(
                "  tls: {{certificate: {}, key: {}}}\n",
                certificate.display(),
                key.display()
            );
        }
        if setup.basic_auth {
            let path = write("htpasswd", HTPASSWD);
            config += &format!("auth: {{htpasswd: {{realm: tests, path: {}}}}}\n", path.display());
        }
        let path = write("config.yml", &config);
        let mut command = tool.command(testkit::arguments!["serve", path]);
        command.env("OTEL_TRACES_EXPORTER", "none");
        let process = Running::start(&mut command);
        wait_until_open(port.number());
        Some(Self { port, _process: process, _folder: folder })
    }

    /// `127.0.0.1:12345`
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port.number())
    }

    /// Stores an image under `repository:tag`. Only for one without TLS and credentials.
    ///
    /// # Panics
    /// When it is refused.
    pub fn push(&self, repository: &str, tag: &str, image: &ContainerImage) {
        for blob in &image.blobs {
            self.push_blob(repository, blob);
        }
        self.push_manifest(repository, tag, &image.media_type, &image.manifest);
    }

    /// Stores a manifest or an index.
    ///
    /// # Panics
    /// When it is refused.
    pub fn push_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: &[u8]) {
        let path = format!("/v2/{repository}/manifests/{tag}");
        let head = self.ask("PUT", &path, media_type, bytes);
        assert!(head.starts_with("HTTP/1.1 201"), "{head}");
    }

    fn push_blob(&self, repository: &str, blob: &Blob) {
        let head = self.ask("POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"");
        let location = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        });
        let location = location.unwrap_or_else(|| panic!("no place for an upload: {head}"));
        let path = location.split_once("://").map_or(location.clone(), |(_, rest)| {
            rest.split_once('/').map(|(_, path)| format!("/{path}")).unwrap_or_default()
        });
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}digest={}", digest(&blob.bytes));
        let head = self.ask("PUT", &path, "application/octet-stream", &blob.bytes);
        assert!(head.starts_with("HTTP/1.1 201"), "{head}");
    }

    /// One request, and the head of its response.
    fn ask(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number())).expect("it listens");
        let kind = if media_type.is_empty() {
            String::new()
        } else {
            format!("Content-Type: {media_type}\r\n")
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{kind}Content-Length: {}\r\n\r\n",
            self.host(),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("cannot ask");
        stream.write_all(body).expect("cannot ask");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("no response");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn wait_until_open(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the registry does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A response of the fake registry.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// 200 and the like.
    pub status: u16,
    /// `Name: value`
    pub headers: Vec<String>,
    /// What follows.
    pub body: Vec<u8>,
}

/// A request to the stand-in.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path and query.
    pub target: String,
    /// Of `Authorization`.
    pub authorization: Option<String>,
}

/// A registry with a table of responses. Blobs should redirect to a [`testkit::FaultServer`].
pub struct StandIn {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<HashMap<String, Reply>>,
    asked: Mutex<Vec<Asked>>,
    /// What `Authorization` has to be below `/v2/`, and the user and password in base64 that get it.
    guard: Mutex<Option<(String, Option<String>)>>,
    stopping: AtomicBool,
}

impl StandIn {
    /// With an empty table: 404 to everything.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if serving.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(stream, address));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// `127.0.0.1:12345`
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Sets the response for a path.
    #[must_use]
    pub fn with(self, path: &str, reply: Reply) -> Self {
        self.put(path, reply);
        self
    }

    /// The same, later.
    pub fn put(&self, path: &str, reply: Reply) {
        self.shared.table.lock().insert(path.to_owned(), reply);
    }

    /// An image whose blobs are its own.
    #[must_use]
    pub fn image(self, repository: &str, tag: &str, image: &ContainerImage) -> Self {
        for blob in &image.blobs {
            let path = format!("/v2/{repository}/blobs/{}", blob.digest());
            self.put(&path, Reply { status: 200, body: blob.bytes.clone(), ..Reply::default() });
        }
        self.document(repository, tag, &image.media_type, &image.manifest)
    }

    /// A manifest or an index, by its tag and by its digest.
    #[must_use]
    pub fn document(self, repository: &str, tag: &str, media_type: &str, bytes: &[u8]) -> Self {
        let headers = vec![format!("Content-Type: {media_type}")];
        let reply = Reply { status: 200, headers, body: bytes.to_vec() };
        self.put(&format!("/v2/{repository}/manifests/{tag}"), reply.clone());
        self.put(&format!("/v2/{repository}/manifests/{}", digest(bytes)), reply);
        self
    }

    /// A blob that is elsewhere.
    #[must_use]
    pub fn redirect(self, repository: &str, blob: &Blob, to: &str) -> Self {
        let headers = vec![format!("Location: {to}")];
        let path = format!("/v2/{repository}/blobs/{}", blob.digest());
        self.with(&path, Reply { status: 307, headers, body: Vec::new() })
    }

    /// Requires this token, which `/token` issues to clients with these `user:password` in base64, or to each client.
    pub fn guard(&self, token: &str, basic: Option<&str>) {
        *self.shared.guard.lock() = Some((format!("Bearer {token}"), basic.map(str::to_owned)));
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().clone()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream, address: SocketAddr) -> Option<()> {
        let mut inbox = Vec::new();
        loop {
            while !inbox.windows(4).any(|four| four == b"\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
                inbox.extend_from_slice(&piece[..count]);
                if !inbox.starts_with(b"GET ") {
                    return None; // TLS, perhaps
                }
            }
            let text = String::from_utf8_lossy(&inbox).into_owned();
            inbox.clear(); // no client sends a second request before the response
            let mut lines = text.split("\r\n");
            let target = lines.next()?.split(' ').nth(1)?.to_owned();
            let authorization = lines.find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
            });
            let asked = Asked { target, authorization };
            let reply = self.answer(&asked, address);
            self.asked.lock().push(asked);
            let mut head = format!("HTTP/1.1 {} Whatever\r\n", reply.status);
            for header in &reply.headers {
                head += &format!("{header}\r\n");
            }
            head += &format!("Content-Length: {}\r\n\r\n", reply.body.len());
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(&reply.body).ok()?;
        }
    }

    fn answer(&self, asked: &Asked, address: SocketAddr) -> Reply {
        let path = asked.target.split('?').next().unwrap_or_default();
        let guard = self.guard.lock().clone();
        if let Some((token, basic)) = guard {
            let basic = basic.map(|basic| format!("Basic {basic}"));
            if path == "/token" {
                let status =
                    if basic.is_none() || asked.authorization == basic { 200 } else { 401 };
                let token = token.trim_start_matches("Bearer ");
                let body = serde_json::json!({ "token": token, "expires_in": 60 }).to_string();
                return Reply { status, body: body.into_bytes(), ..Reply::default() };
            }
            if asked.authorization.as_deref() != Some(&token) {
                let challenge = format!(
                    "WWW-Authenticate: Bearer realm=\"http://{address}/token\",service=\"it\""
                );
                return Reply { status: 401, headers: vec![challenge], body: Vec::new() };
            }
        }
        let found = self.table.lock().get(path).cloned();
        found.unwrap_or(Reply { status: 404, ..Reply::default() })
    }
}
