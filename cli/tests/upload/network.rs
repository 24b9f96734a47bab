//! A network that carries so many bytes and then breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Between a client and a server.
pub struct Network {
    pub port: u16,
    refuses: Arc<AtomicBool>,
}

impl Network {
    /// Each connection to it is one to `server`. The n-th carries `limits[n]` bytes towards it, and those after the last
    /// as many as come.
    pub fn new(server: SocketAddr, limits: &[u64]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let refuses = Arc::new(AtomicBool::new(false));
        let (limits, refused) = (limits.to_vec(), Arc::clone(&refuses));
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let limit = limits.get(number).copied();
                if limit.is_none() && refused.load(Ordering::Relaxed) {
                    continue; // closed at once
                }
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || carry(back.0, back.1, u64::MAX));
                thread::spawn(move || carry(client, server, limit.unwrap_or(u64::MAX)));
            }
        });
        Self { port, refuses }
    }

    /// Nothing is carried any more once all limits were used.
    pub fn refuse_later(&self) {
        self.refuses.store(true, Ordering::Relaxed);
    }
}

/// Carries bytes until either side ends, or there were as many; then nothing goes either way.
fn carry(mut from: TcpStream, mut to: TcpStream, mut limit: u64) {
    let mut piece = [0; 16 << 10];
    while limit > 0 {
        let most = (piece.len() as u64).min(limit) as usize;
        match from.read(&mut piece[..most]) {
            Ok(count) if count > 0 => {
                if to.write_all(&piece[..count]).is_err() {
                    break;
                }
                limit -= count as u64;
            }
            _ => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
