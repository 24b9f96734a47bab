//! A web server that serves one image and fails on purpose.
//!
//! ```
//! use testkit::{Fault, FaultServer, MIB, pattern};
//!
//! let server = FaultServer::in_memory(&pattern(8 * MIB))
//!     .on(1, Fault::CloseAfter(MIB)) // the first GET request
//!     .on(2, Fault::Status(503))
//!     .always(Fault::HeadForbidden);
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! assert!(server.requests().is_empty());
//! ```
//!
//! A loop over plain sockets with a thread per connection: a real server cannot be made to fail in all of these ways. It serves
//! the same image under every path, with HTTP/1.1 keep-alive, one range per request, strong ETags and If-Range, and behaves
//! correctly except for the faults that a test adds.

mod connection;
mod fault;
mod reply;
mod request;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::tls::Authority;
pub use fault::Fault;
use fault::{Rule, When};
use parking_lot::{Condvar, Mutex, MutexGuard};
pub use request::Request;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The server. It stops, and closes all connections, on drop.
pub struct FaultServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

/// What is served. A file is read as it is sent.
#[derive(Clone)]
enum Content {
    Memory(Arc<[u8]>),
    File(Arc<File>, u64),
}

struct Shared {
    state: Mutex<State>,
    /// Notified of every change of `state`.
    changed: Condvar,
    tls: OnceLock<Authority>,
    stopping: AtomicBool,
    body_sent: AtomicU64,
}

struct State {
    content: Content,
    generation: u64,
    rules: Vec<Arc<Rule>>,
    requests: Vec<Request>,
    gets: u64,
    /// Bodies that stand still at this moment.
    stalled: u64,
    connections: Vec<TcpStream>,
}

impl FaultServer {
    /// Serves a copy of these bytes.
    pub fn in_memory(image: &[u8]) -> Self {
        Self::start(LOOPBACK, Content::Memory(image.into()))
    }

    /// Serves a copy of these bytes at an address of this machine that others reach.
    pub fn in_memory_on(host: IpAddr, image: &[u8]) -> Self {
        Self::start(host, Content::Memory(image.into()))
    }

    /// Serves a file as it is now.
    ///
    /// # Panics
    /// When it cannot be opened.
    pub fn file(path: &Path) -> Self {
        Self::start(LOOPBACK, Content::open(path))
    }

    /// Speaks TLS, with a certificate for its address and `localhost` of an authority of its own.
    #[must_use]
    pub fn tls(self) -> Self {
        let address = self.address.ip().to_string();
        self.shared.tls.get_or_init(|| Authority::signing_for(&[address]));
        self
    }

    /// The certificate of the authority, for a client to trust; empty without TLS.
    pub fn ca_pem(&self) -> &str {
        self.shared.tls.get().map_or("", |authority| &authority.ca_pem)
    }

    /// The fault falls on the n-th GET, counted from 1. Several faults may fall on one request.
    #[must_use]
    pub fn on(self, number: u64, fault: Fault) -> Self {
        self.with(When::Nth(number), fault)
    }

    /// The fault affects every request.
    #[must_use]
    pub fn always(self, fault: Fault) -> Self {
        self.with(When::Always, fault)
    }

    /// The fault affects the first GET request on which it has an effect: `CloseAt(n)` the first whose range holds byte
    /// n.
    #[must_use]
    pub fn once(self, fault: Fault) -> Self {
        self.with(When::Once(AtomicBool::new(false)), fault)
    }

    /// The fault affects every request for this path.
    #[must_use]
    pub fn at(self, path: &str, fault: Fault) -> Self {
        self.with(When::Path(path.to_owned()), fault)
    }

    /// The fault falls on every request that is accepted.
    #[must_use]
    pub fn when(
        self,
        accepts: impl Fn(&Request) -> bool + Send + Sync + 'static,
        fault: Fault,
    ) -> Self {
        self.with(When::Accepts(Box::new(accepts)), fault)
    }

    /// Removes all faults: from the next request on the server behaves, and a body that stalls is ended.
    pub fn heal(&self) {
        self.set_rules(Vec::new());
    }

    /// Replaces all faults by one that affects every request from the next one on; a body that stalls is ended.
    pub fn fail_with(&self, fault: Fault) {
        self.set_rules(vec![Arc::new(Rule { when: When::Always, fault })]);
    }

    fn set_rules(&self, rules: Vec<Arc<Rule>>) {
        let mut state = self.shared.lock();
        state.rules = rules;
        for connection in state.connections.drain(..) {
            // The client may have closed it already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Serves other bytes, under another ETag, from the next request on.
    pub fn replace(&self, image: &[u8]) {
        let mut state = self.shared.lock();
        state.content = Content::Memory(image.into());
        state.generation += 1;
    }

    /// The image's address, by number: `http://127.0.0.1:12345/image`.
    pub fn url(&self) -> String {
        self.url_of("/image")
    }

    /// The address of another path, which begins with `/`.
    pub fn url_of(&self, path: &str) -> String {
        self.url_via(&self.address.ip().to_string(), path)
    }

    /// The same by another name of this host: `localhost` is another host to a careful client.
    pub fn url_via(&self, host: &str, path: &str) -> String {
        let scheme = if self.shared.tls.get().is_some() { "https" } else { "http" };
        format!("{scheme}://{host}:{}{path}", self.address.port())
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().requests.clone()
    }

    /// The ranges of all GETs so far, as `0-` or `512-1023`; an empty text for a request without a range.
    pub fn ranges(&self) -> Vec<String> {
        let gets = self.requests().into_iter().filter(Request::is_get);
        gets.map(|request| request.range().unwrap_or_default().to_owned()).collect()
    }

    /// Bytes of the image sent so far, in all bodies together.
    pub fn body_bytes_sent(&self) -> u64 {
        self.shared.body_sent.load(Ordering::SeqCst)
    }

    /// Waits until a body stands still.
    ///
    /// # Panics
    /// When none does within `limit`.
    pub fn wait_for_stall(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.shared.lock();
        while state.stalled == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no body stalled within {limit:?}; requests: {:#?}",
                state.requests
            );
            self.shared.changed.wait_for(&mut state, left);
        }
    }

    fn with(self, when: When, fault: Fault) -> Self {
        self.shared.lock().rules.push(Arc::new(Rule { when, fault }));
        self
    }

    fn start(host: IpAddr, content: Content) -> Self {
        let listener = TcpListener::bind((host, 0)).expect("cannot listen there");
        let address = listener.local_addr().expect("a listener has an address");
        let state = State {
            content,
            generation: 1,
            rules: Vec::new(),
            requests: Vec::new(),
            gets: 0,
            stalled: 0,
            connections: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            tls: OnceLock::new(),
            stopping: AtomicBool::new(false),
            body_sent: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &accepting));
        Self { shared, address, acceptor: Some(acceptor) }
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.heal();
        // Wakes the acceptor; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            // A panic in it has been printed.
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Content {
    fn open(path: &Path) -> Self {
        let file = File::open(path)
            .unwrap_or_else(|error| panic!("cannot serve {}: {error}", path.display()));
        let len = file.metadata().expect("an open file has a length").len();
        Self::File(Arc::new(file), len)
    }

    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, len) => *len,
        }
    }
}

/// Accepts until the server is dropped, then waits for the open connections.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    let mut accepted = 0;
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        accepted += 1;
        let shared = Arc::clone(shared);
        threads.retain(|thread: &JoinHandle<()>| !thread.is_finished());
        // More at a time would be a defect of the client.
        if threads.len() < CONNECTIONS_MAX {
            threads.push(std::thread::spawn(move || connection::serve(stream, accepted, &shared)));
        }
    }
    for thread in threads {
        // A panic in it has been printed.
        let _ = thread.join();
    }
}

const CONNECTIONS_MAX: usize = 128;

#[cfg(test)]
mod tests;
