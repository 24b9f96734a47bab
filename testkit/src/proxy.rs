//! A forward proxy: CONNECT tunnels, and plain requests by full address. It records requests, connects to other addresses than
//! the requested ones, and stalls in the middle, as a test configures it.
//!
//! Names that end in `.test` (RFC 6761: they exist nowhere) lead to this machine. Careful clients never send requests
//! for loopback addresses through a proxy.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Condvar, Mutex};

use crate::http::Request;

/// The proxy. It stops, and closes all connections, on drop.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<TcpStream>>,
    /// What `Proxy-Authorization` has to be.
    authorization: Mutex<Option<String>>,
    /// The requested `host:port`, and the address to connect to instead.
    routes: Mutex<Vec<(String, SocketAddr)>>,
    /// After this number of bytes to its server a connection stalls.
    hold_after: Mutex<Option<u64>>,
    released: Condvar,
    stopping: AtomicBool,
}

impl Proxy {
    /// Starts it on a free port of 127.0.0.1.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("cannot listen on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            let mut number = 0;
            while let Ok((stream, _)) = listener.accept() {
                if accepting.stopping.load(Ordering::SeqCst) {
                    break;
                }
                number += 1;
                let shared = Arc::clone(&accepting);
                // Ends when a side closes; the proxy's drop closes both.
                std::thread::spawn(move || forward(stream, number, &shared));
            }
        });
        Self { shared, address, acceptor: Some(acceptor) }
    }

    /// Only for this user; all others get 407.
    #[must_use]
    pub fn basic_auth(self, user: &str, password: &str) -> Self {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        *self.shared.authorization.lock() = Some(value);
        self
    }

    /// Connects clients that request `authority`, a host and a port, to `address`.
    #[must_use]
    pub fn leading(self, authority: &str, address: SocketAddr) -> Self {
        let mut routes = self.shared.routes.lock();
        routes.push((authority.to_owned(), address));
        drop(routes);
        self
    }

    /// Each connection stalls once it has carried this number of bytes to its server, until [`Proxy::release`].
    #[must_use]
    pub fn holding_after(self, bytes: u64) -> Self {
        *self.shared.hold_after.lock() = Some(bytes);
        self
    }

    /// All connections continue, and none stalls again.
    pub fn release(&self) {
        *self.shared.hold_after.lock() = None;
        self.shared.released.notify_all();
    }

    /// Breaks all connections that there are.
    pub fn sever(&self) {
        let mut connections = self.shared.connections.lock();
        for stream in connections.drain(..) {
            // The client may have closed it already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// `http://127.0.0.1:port`, as `http_proxy` and `https_proxy` want it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far: `CONNECT host:port`, or `GET http://host:port/path`.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.release();
        self.sever();
        // Wakes the acceptor; if that fails it has ended already.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// One request and all further bytes. Ends when either side disconnects, which is no error.
fn forward(client: TcpStream, number: u64, shared: &Shared) {
    if let Ok(twin) = client.try_clone() {
        shared.connections.lock().push(twin);
    }
    let _ = try_forward(client, number, shared);
}

fn try_forward(mut client: TcpStream, number: u64, shared: &Shared) -> io::Result<()> {
    let Some(mut request) = Request::read(&mut client, number)? else { return Ok(()) };
    let wanted = shared.authorization.lock().clone();
    let allowed = wanted.is_none() || request.header("proxy-authorization") == wanted.as_deref();
    request.status = if allowed { 200 } else { 407 };
    shared.requests.lock().push(request.clone());
    if !allowed {
        return client.write_all(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\
              Content-Length: 0\r\nConnection: close\r\n\r\n",
        );
    }
    let (authority, first) = if request.method == "CONNECT" {
        (request.target.clone(), None)
    } else {
        let Some(rest) = request.target.strip_prefix("http://") else {
            return client.write_all(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // One request per connection, so that the next one is seen too.
        let mut head = format!("{} {path} HTTP/1.1\r\nconnection: close\r\n", request.method);
        let passed = |name: &str| !name.starts_with("proxy-") && name != "connection";
        for (name, value) in request.headers.iter().filter(|(name, _)| passed(name)) {
            head += &format!("{name}: {value}\r\n");
        }
        (authority.to_owned(), Some(head + "\r\n"))
    };
    let Ok(mut server) = shared.connect(&authority) else {
        return client.write_all(
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    match first {
        Some(head) => server.write_all(head.as_bytes())?,
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pump(&mut from_client, &mut to_server, |carried| shared.hold(carried)));
        pump(&mut server, &mut client, |_| ());
    });
    Ok(())
}

impl Shared {
    fn connect(&self, authority: &str) -> io::Result<TcpStream> {
        let routes = self.routes.lock().clone();
        if let Some((_, address)) = routes.iter().find(|(from, _)| from == authority) {
            return TcpStream::connect(address);
        }
        match authority.split_once(".test:") {
            Some((_, port)) => TcpStream::connect(format!("127.0.0.1:{port}")),
            None => TcpStream::connect(authority),
        }
    }

    /// Blocks a connection that has reached the limit.
    fn hold(&self, carried: u64) {
        let mut most = self.hold_after.lock();
        let is_held = |most: &mut Option<u64>| most.is_some_and(|most| carried >= most);
        self.released.wait_while(&mut most, is_held);
    }
}

/// Copies until either side ends, then ends both. Calls `carried` with the number of bytes so far.
fn pump(from: &mut TcpStream, to: &mut TcpStream, carried: impl Fn(u64)) {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        total += count as u64;
        carried(total);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
