//! A loopback of one's own, for programs that insist on their port.

use crate::sys;
use crate::tool::{require_tool, skip};

/// Runs `test` on a thread in a network of its own, where only loopback is up and every port is free. Servers and programs
/// that it starts are in the same network. Without root, or without `ip`, it is skipped aloud.
///
/// # Panics
/// When `test` does; in CI also when it would have to be skipped.
pub fn in_own_network(test: impl FnOnce() + Send) {
    if !sys::is_root() {
        return skip("a network of one's own takes root");
    }
    let Some(ip) = require_tool("ip") else { return };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::leave_network().expect("cannot leave the network");
            ip.run(["link", "set", "lo", "up"]);
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn two_networks_have_the_same_port_twice() {
        in_own_network(|| {
            let outer = TcpListener::bind("127.0.0.1:8443").unwrap();
            in_own_network(|| {
                assert!(TcpStream::connect("127.0.0.1:8443").is_err());
                TcpListener::bind("127.0.0.1:8443").unwrap();
            });
            TcpStream::connect(outer.local_addr().unwrap()).unwrap();
        });
    }
}
