//! Connections whose other end is gone without a word: its node lost power, or its pod its network before the kernel could close
//! them. Who waits for bytes there waits forever, unless the kernel asks whether the other end still exists.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// Nothing has arrived for so long: the first probe is sent.
const IDLE: Duration = Duration::from_secs(15);
/// Between two probes.
const INTERVAL: Duration = Duration::from_secs(5);
/// After so many without a response the connection fails.
const PROBES: u32 = 3;

/// Has the kernel end a connection after half a minute in which the other end's kernel does not respond. A peer that sends
/// nothing and responds to probes is not affected.
///
/// # Errors
/// When this is no TCP socket.
pub fn detect_dead_peer(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_keepidle(&socket, IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn kernel_probes_an_idle_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        detect_dead_peer(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let probes = sockopt::tcp_keepcnt(&stream).unwrap();
        let first = sockopt::tcp_keepidle(&stream).unwrap();
        let all = first + sockopt::tcp_keepintvl(&stream).unwrap() * probes;
        assert_eq!(all, Duration::from_secs(30));
    }
}
