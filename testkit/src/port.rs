//! Ports for servers that cannot choose one by themselves.

use std::os::fd::OwnedFd;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketAddrAny, SocketType, bind, getsockname, socket};

/// A port of loopback that the kernel gives to no program that asks for any port. A server that names it can listen there if it sets
/// `SO_REUSEADDR`, as most do. Free again when dropped.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    /// Bound, and does not listen.
    _socket: OwnedFd,
}

impl ReservedPort {
    /// # Panics
    /// When none is free.
    #[expect(clippy::new_without_default, reason = "each has another number")]
    pub fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("no socket");
        set_socket_reuseaddr(&socket, true).expect("cannot share a port");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        bind(&socket, &any).expect("no port is free on loopback");
        let address: SocketAddrAny = getsockname(&socket).expect("a bound socket has an address");
        let address = std::net::SocketAddr::try_from(address).expect("an address of IPv4");
        Self { number: address.port(), _socket: socket }
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn server_that_names_the_port_gets_it_and_no_other_does() {
        let port = ReservedPort::new();
        let others: Vec<_> = (0..1000).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let is_taken = |other: &TcpListener| other.local_addr().unwrap().port() == port.number();
        assert!(!others.iter().any(is_taken));
        assert!(TcpStream::connect(("127.0.0.1", port.number())).is_err(), "no server listens yet");
        let server = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
        TcpStream::connect(server.local_addr().unwrap()).unwrap();
    }
}
