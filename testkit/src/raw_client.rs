//! A TLS client that sends exactly the bytes of a test.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

/// Long enough for a busy machine, short enough that a hang is seen.
const LIMIT: Duration = Duration::from_secs(60);

/// A client of one server, with a connection for each request.
#[derive(Clone, Debug)]
pub struct RawClient {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawResponse {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As long as `Content-Length` states.
    pub body: String,
}

impl RawResponse {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }
}

#[derive(Debug)]
pub struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl RawClient {
    /// A client of the server at `address`, which must have a certificate for `localhost` of the CA `trusted` (PEM). It presents
    /// `identity`: certificate and key, as PEM.
    ///
    /// # Panics
    /// When one of them is no PEM.
    pub fn new(address: SocketAddr, trusted: &str, identity: Option<(&str, &str)>) -> Self {
        Self::speaking(address, trusted, identity, rustls::ALL_VERSIONS)
    }

    /// The same, with some versions of TLS only.
    ///
    /// # Panics
    /// As above.
    pub fn speaking(
        address: SocketAddr,
        trusted: &str,
        identity: Option<(&str, &str)>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let pem =
            |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).expect("no certificate");
        let mut roots = RootCertStore::empty();
        roots.add(pem(trusted)).expect("no authority");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("the provider has TLS 1.2 and 1.3")
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("no key");
                let certificate = vec![pem(certificate)];
                config.with_client_auth_cert(certificate, key).expect("not a pair")
            }
        };
        Self { address, config: Arc::new(config) }
    }

    /// Connects, without shaking hands yet.
    ///
    /// # Panics
    /// When no server listens there.
    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("a server listens");
        stream.set_read_timeout(Some(LIMIT)).expect("cannot limit reading");
        stream.set_write_timeout(Some(LIMIT)).expect("cannot limit writing");
        let name = ServerName::try_from("localhost").expect("it is a name");
        let session = ClientConnection::new(Arc::clone(&self.config), name).expect("cannot begin");
        Connection(StreamOwned::new(session, stream))
    }

    /// Sends a request without a body, with these header lines.
    pub fn ask(&self, method: &str, path: &str, headers: &str) -> RawResponse {
        let mut connection = self.connect();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        connection.send(head.as_bytes());
        connection.answer_to(method)
    }

    /// Sends a POST with its whole body, a `Content-Length` and these header lines.
    pub fn post(&self, path: &str, headers: &str, body: &[u8]) -> RawResponse {
        let mut connection = self.connect();
        connection.send(post_head(path, headers, body.len()).as_bytes());
        connection.send(body);
        connection.answer()
    }
}

/// The head of a POST with a body of `length` bytes.
pub fn post_head(path: &str, headers: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n")
}

impl Connection {
    /// Sends bytes. An error is ignored: the response is what counts.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).and_then(|()| self.0.flush());
    }

    /// Reads the response to a POST.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(self) -> RawResponse {
        self.answer_to("POST")
    }

    /// Reads the head, and as much body as that states, and closes the connection. A response to HEAD has no body.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer_to(mut self, method: &str) -> RawResponse {
        self.response(method)
    }

    /// The same, but keeps the connection open.
    ///
    /// # Panics
    /// When there is none.
    pub fn response(&mut self, method: &str) -> RawResponse {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            if let Some(answer) = parse(&text, method) {
                return answer;
            }
            let n = self.hear(&mut piece).unwrap_or_else(|error| panic!("no response: {error}"));
            assert!(n > 0, "no response: {:?}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..n]);
        }
    }

    /// Reads what the server has sent, also if it accepts nothing any more: an ordinary read would first try to send the rest.
    fn hear(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.0.conn.is_handshaking() {
            return self.0.read(out);
        }
        loop {
            match self.0.conn.reader().read(out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                heard => return heard,
            }
            if self.0.conn.read_tls(&mut self.0.sock)? == 0 {
                return Ok(0);
            }
            self.0.conn.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Reads until the server closes the connection. Returns the error, unless it closed it properly.
    ///
    /// # Panics
    /// When it does not.
    pub fn hung_up(mut self) -> Option<String> {
        let mut scrap = [0; 4096];
        loop {
            match self.0.read(&mut scrap) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    let waited = error.kind() == io::ErrorKind::WouldBlock;
                    assert!(!waited, "the server did not close the connection");
                    return Some(error.to_string());
                }
            }
        }
    }
}

fn parse(text: &[u8], method: &str) -> Option<RawResponse> {
    let text = String::from_utf8_lossy(text);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status: u16 = head.split(' ').nth(1)?.parse().ok()?;
    if status == 100 {
        return parse(body.as_bytes(), method);
    }
    let headers: Vec<_> = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok());
    let length: usize = if method == "HEAD" { 0 } else { length.unwrap_or(0) };
    let body = body.get(..length)?.to_owned();
    Some(RawResponse { status, headers, body })
}
