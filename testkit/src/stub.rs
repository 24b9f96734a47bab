//! A web server whose responses a test computes: for stand-ins of APIs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::tls::Authority;

/// No test sends longer requests.
const REQUEST_MAX: usize = 1 << 20;
/// What a client that speaks TLS begins with.
const TLS_HANDSHAKE: u8 = 0x16;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A request with its body.
#[derive(Clone, Debug)]
pub struct StubRequest {
    /// `GET`, `POST` …
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl StubRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// First byte and the one after the last, of a request for a part.
    pub fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse::<u64>().ok()? + 1))
    }
}

#[derive(Clone, Debug, Default)]
pub struct StubResponse {
    pub status: u16,
    /// Besides the length.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl StubResponse {
    /// A response with this body.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: vec![], body: body.into() }
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A web server. It listens until the test process ends.
#[derive(Debug)]
pub struct Stub {
    address: SocketAddr,
    authority: Option<Authority>,
}

impl Stub {
    /// Responds to every request with what `answer` returns.
    pub fn start(answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static) -> Self {
        Self::listen(LOOPBACK, None, answer)
    }

    /// The same on another address of this machine, which pods of a cluster reach.
    pub fn start_on(
        address: IpAddr,
        answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        Self::listen(address, None, answer)
    }

    /// The same over TLS, with a certificate of a CA that no client trusts by default.
    pub fn start_tls(
        answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        Self::listen(LOOPBACK, Some(Authority::new()), answer)
    }

    fn listen(
        address: IpAddr,
        authority: Option<Authority>,
        answer: impl Fn(&StubRequest) -> StubResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("cannot listen");
        let address = listener.local_addr().expect("a listener has an address");
        let stub = Self { address, authority };
        let config = stub.authority.as_ref().map(|authority| Arc::clone(&authority.config));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, answer) = (config.clone(), Arc::clone(&answer));
                // A client that disconnects early is no error.
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
                    match config {
                        None => converse(&mut &stream, &*answer),
                        Some(config) => {
                            let tls = rustls::ServerConnection::new(config);
                            let tls = tls.map_err(io::Error::other)?;
                            converse(
                                &mut rustls::StreamOwned::<_, TcpStream>::new(tls, stream),
                                &*answer,
                            )
                        }
                    }
                });
            }
        });
        stub
    }

    /// `http://127.0.0.1:12345` and a path.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// The authority of the server's certificate as PEM, for a client to trust.
    ///
    /// # Panics
    /// Without TLS.
    pub fn authority(&self) -> &str {
        &self.authority.as_ref().expect("there is an authority only with TLS").ca_pem
    }

    /// The server's certificate as on the wire.
    ///
    /// # Panics
    /// Without TLS.
    pub fn certificate(&self) -> &[u8] {
        &self.authority.as_ref().expect("there is a certificate only with TLS").certificate
    }
}

fn converse(
    stream: &mut (impl Read + Write),
    answer: &dyn Fn(&StubRequest) -> StubResponse,
) -> io::Result<()> {
    let mut inbox = Vec::new();
    while let Some(request) = read(stream, &mut inbox)? {
        let StubResponse { status, headers, body } = answer(&request);
        let mut bytes = format!("HTTP/1.1 {status} Stub\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
        bytes.extend(body);
        stream.write_all(&bytes)?;
        stream.flush()?;
    }
    Ok(())
}

fn read(stream: &mut impl Read, inbox: &mut Vec<u8>) -> io::Result<Option<StubRequest>> {
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = inbox.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&inbox[..end]).into_owned();
            let mut lines = head.lines();
            let mut first = lines.next().unwrap_or_default().split(' ');
            let mut next = || first.next().unwrap_or_default().to_owned();
            let (method, target) = (next(), next());
            let header = |line: &str| {
                let (name, value) = line.split_once(':')?;
                Some((name.to_lowercase(), value.trim().to_owned()))
            };
            let headers: Vec<_> = lines.filter_map(header).collect();
            let mut request = StubRequest { method, target, headers, body: String::new() };
            let len =
                request.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
            let whole = end + 4 + len;
            if inbox.len() >= whole {
                request.body = String::from_utf8_lossy(&inbox[end + 4..whole]).into_owned();
                inbox.drain(..whole);
                return Ok(Some(request));
            }
        }
        let count = stream.read(&mut piece)?;
        if count == 0 || inbox.len() > REQUEST_MAX {
            return Ok(None);
        }
        inbox.extend_from_slice(&piece[..count]);
        if inbox.first() == Some(&TLS_HANDSHAKE) {
            return Ok(None); // a client that tries TLS first finds at once that there is none
        }
    }
}
