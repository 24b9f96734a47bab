//! A network between two programs that counts bytes and interrupts connections.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to its port. It ends with the test.
pub struct Relay {
    pub port: u16,
    /// Of each connection, bytes from its client.
    sent: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

impl Relay {
    /// To a port of this machine. The n-th connection is interrupted after `breaks[n]` bytes from its client.
    pub fn to(port: u16, breaks: Vec<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut breaks = breaks.into_iter();
        let counts = Arc::clone(&sent);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                // A server that has ended is a connection that breaks.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let limit = breaks.next().unwrap_or(u64::MAX);
                let (back, home) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let count = Arc::new(AtomicU64::new(0));
                counts.lock().unwrap().push(Arc::clone(&count));
                thread::spawn(move || pass(client, server, limit, &count));
                thread::spawn(move || pass(back, home, u64::MAX, &AtomicU64::new(0)));
            }
        });
        Self { port: own, sent }
    }

    /// Bytes that clients have sent, without connections that carried little more than a handshake: how often a client
    /// asks whether the server is still busy is not deterministic.
    pub fn sent(&self) -> u64 {
        const HANDS: u64 = 8000;
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|count| count.load(Ordering::SeqCst)).filter(|sent| *sent > HANDS).sum()
    }
}

/// An end is passed on as an end; behind the limit the whole connection breaks. What was passed on before still arrives: a socket that
/// is closed with unread bytes would take back what it has sent.
fn pass(mut from: TcpStream, mut to: TcpStream, limit: u64, count: &AtomicU64) {
    let mut left = limit;
    let mut piece = vec![0; 64 << 10];
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match from.read(&mut piece[..most]) {
            Ok(0) | Err(_) => {
                let _ = to.shutdown(Shutdown::Write); // it may have gone
                return;
            }
            Ok(len) => {
                count.fetch_add(len as u64, Ordering::SeqCst);
                left -= len as u64;
                if to.write_all(&piece[..len]).is_err() {
                    let _ = io::copy(&mut from, &mut io::sink()); // until it has gone too
                    return;
                }
            }
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Write)); // as above
}
