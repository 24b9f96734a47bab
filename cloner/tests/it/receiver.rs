//! A server that receives snappy and extent streams, and interrupts them on demand.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use clonestream::extents::{DATA_MAX, Entry, ExtentReader, Frame};
use clonestream::offer::{self, SourceIdentity, StreamOffer, StreamPosition};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// Faults of the server.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Supports only snappy streams.
    pub old: bool,
    /// The n-th upload is interrupted after that many bytes of its body.
    pub breaks: Vec<usize>,
    /// Status instead of 200 of the first requests for an offer and of the first uploads.
    pub offers: Vec<u16>,
    pub answers: Vec<u16>,
}

/// What the server has received.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// `POST path content-type`, one a request.
    pub requests: Vec<String>,
    /// Bodies of complete snappy streams.
    pub old: Vec<Vec<u8>>,
    /// Content of extent streams.
    pub entries: Vec<(Entry, Vec<u8>)>,
    pub durable: Option<(SourceIdentity, StreamPosition)>,
    /// Start of each extent stream.
    pub starts: Vec<StreamPosition>,
    /// Bytes of all bodies.
    pub body_bytes: usize,
    pub whole: bool,
}

/// The server. It ends with the test.
pub struct Receiver {
    pub url: String,
    pub authority: String,
    pub certificate: String,
    pub key: String,
    /// A certificate that the server does not know.
    pub stranger: (String, String),
    state: Arc<Mutex<Received>>,
}

impl Receiver {
    pub fn new(script: Script) -> Self {
        let ca = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap();
            (certificate, Issuer::new(params, key))
        };
        let leaf = |issuer: &Issuer<'_, KeyPair>, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params =
                CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
                    .unwrap();
            params.extended_key_usages = vec![usage];
            (params.signed_by(&key, issuer).unwrap(), key)
        };
        let (server_ca, server_issuer) = ca("servers");
        let (client_ca, client_issuer) = ca("clients");
        let (_, other_issuer) = ca("others");
        let (server, server_key) = leaf(&server_issuer, ExtendedKeyUsagePurpose::ServerAuth);
        let (client, client_key) = leaf(&client_issuer, ExtendedKeyUsagePurpose::ClientAuth);
        let (stranger, stranger_key) = leaf(&other_issuer, ExtendedKeyUsagePurpose::ClientAuth);

        let mut roots = RootCertStore::empty();
        roots.add(client_ca.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![server.der().clone()], key)
            .unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url =
            format!("https://localhost:{}/v1beta1/upload", listener.local_addr().unwrap().port());
        let state = Arc::new(Mutex::new(Received::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let config = Arc::new(config);
            let script = Mutex::new(script);
            for socket in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A connection that breaks is nothing to report: the tests look at what has come.
                let _ = serve(StreamOwned::new(connection, socket.unwrap()), &script, &shared);
            }
        });
        Self {
            url,
            authority: server_ca.pem(),
            certificate: client.pem(),
            key: client_key.serialize_pem(),
            stranger: (stranger.pem(), stranger_key.serialize_pem()),
            state,
        }
    }

    pub fn received(&self) -> Received {
        self.state.lock().unwrap().clone()
    }
}

fn serve(
    stream: StreamOwned<ServerConnection, TcpStream>,
    script: &Mutex<Script>,
    state: &Mutex<Received>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let header = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_default().to_owned()
    };
    let mut words = lines[0].split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
    let content = header(offer::CONTENT_HEADER);
    state.lock().unwrap().requests.push(format!("{method} {path} {content}").trim_end().to_owned());
    let first = |list: &mut Vec<u16>| if list.is_empty() { 200 } else { list.remove(0) };
    let is_old = script.lock().unwrap().old;
    if method == "GET" {
        let status = first(&mut script.lock().unwrap().offers);
        let status = if is_old { 404 } else { status };
        let offered = StreamOffer { version: 1, durable: state.lock().unwrap().durable };
        let text =
            if status == 200 { format!("{}: {offered}\r\n", offer::HEADER) } else { String::new() };
        return answer(&mut stream, status, &text);
    }
    assert_eq!(header("Transfer-Encoding"), "chunked");
    let status = first(&mut script.lock().unwrap().answers);
    if status != 200 {
        return answer(&mut stream, status, "");
    }
    let limit = match &mut script.lock().unwrap().breaks {
        list if list.is_empty() => usize::MAX,
        list => list.remove(0),
    };
    let mut body = Body { stream: &mut stream, left: 0, ended: false, limit, state };
    if path == offer::PATH && !is_old {
        receive_extents(&mut body, state)?;
    } else {
        let mut bytes = Vec::new();
        body.read_to_end(&mut bytes)?;
        let mut received = state.lock().unwrap();
        received.old.push(bytes);
        received.whole = true;
    }
    answer(&mut stream, 200, "")
}

fn answer(
    stream: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>,
    status: u16,
    headers: &str,
) -> io::Result<()> {
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 {status} Status\r\n{headers}Content-Length: 3\r\n\r\nso.")?;
    stream.conn.send_close_notify();
    stream.flush()?;
    wait_for_acknowledgement(&stream.sock)
}

/// Waits until the client's kernel has all that was sent. Closing a socket whose input was not read resets the connection,
/// and what was not sent by then, such as a small segment held back by Nagle's algorithm, is lost.
///
/// Source: `tx_queue` in proc(5), `/proc/net/tcp`.
fn wait_for_acknowledgement(socket: &TcpStream) -> io::Result<()> {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port())
        }
        SocketAddr::V6(_) => unreachable!("the server listens on an IPv4 address"),
    };
    let (local, peer) = (hex(socket.local_addr()?), hex(socket.peer_addr()?));
    let is_waiting = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1..3) == Some(&[&local, &peer]) && !fields[4].starts_with("00000000:")
    };
    while fs::read_to_string("/proc/net/tcp")?.lines().any(is_waiting) {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// As a receiver does that writes and syncs: what was unpacked is durable.
fn receive_extents(body: &mut impl Read, state: &Mutex<Received>) -> io::Result<()> {
    let mut scrap = vec![0; DATA_MAX];
    let mut reader = ExtentReader::open(body)?;
    let preamble = *reader.preamble();
    state.lock().unwrap().starts.push(preamble.begin);
    while let Some(frame) = reader.next_frame()? {
        let mut received = state.lock().unwrap();
        match frame {
            Frame::Entry { index, entry } => {
                let index = index as usize;
                received.entries.truncate(index + 1);
                if received.entries.len() == index {
                    received.entries.push((entry, Vec::new()));
                }
            }
            Frame::Data(data) => {
                data.unpack(&mut scrap)?;
                let content = &mut received.entries.last_mut().unwrap().1;
                content.truncate(data.at as usize);
                assert_eq!(content.len() as u64, data.at);
                content.extend(&scrap[..data.len()]);
            }
            Frame::Zero { at, len } => {
                let content = &mut received.entries.last_mut().unwrap().1;
                content.truncate(at as usize);
                assert_eq!(content.len() as u64, at);
                content.resize((at + len) as usize, 0);
            }
        }
        received.durable = Some((preamble.identity, reader.position()));
    }
    state.lock().unwrap().whole = true;
    Ok(())
}

/// A chunked body that is interrupted after `limit` bytes.
struct Body<'a, R> {
    stream: &'a mut R,
    left: usize,
    ended: bool,
    limit: usize,
    state: &'a Mutex<Received>,
}

impl<R: BufRead> Read for Body<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.ended || out.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.left = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            if self.left == 0 {
                self.ended = true;
                self.stream.read_line(&mut line)?;
                return Ok(0);
            }
        }
        if self.limit == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let most = out.len().min(self.left).min(self.limit);
        let count = self.stream.read(&mut out[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count;
        self.limit -= count;
        self.state.lock().unwrap().body_bytes += count;
        if self.left == 0 {
            let mut end = [0; 2];
            self.stream.read_exact(&mut end)?;
        }
        Ok(count)
    }
}
