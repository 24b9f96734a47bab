//! A network of its own for upload servers. As in a cluster, a server has an address that its proxy has not: upstream CDI's
//! proxy takes its port at every address of its own.

use std::path::PathBuf;
use std::process;

use anyhow::Result;

use crate::party::{loopback_bytes, network_bytes};
use crate::shell;

/// The server's address. All of 198.18.0.0/15 is for benchmarks (RFC 2544).
pub const SERVER: &str = "198.18.0.2";
const PROXY: &str = "198.18.0.1";

/// A network with one server in it, and the cable to it. Goes when dropped.
pub struct Link {
    name: String,
}

impl Link {
    /// Makes it. Takes root.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn make() -> Result<Self> {
        let name = format!("cdi{}", process::id());
        let link = Self { name: name.clone() };
        ip(&["netns", "add", &name])?;
        // As large as packets of the loopback device.
        ip(&[
            "link", "add", &name, "mtu", "65535", "type", "veth", "peer", "name", "eth0", "netns",
            &name,
        ])?;
        ip(&["-netns", &name, "link", "set", "eth0", "mtu", "65535", "up"])?;
        ip(&["-netns", &name, "addr", "add", &format!("{SERVER}/30"), "dev", "eth0"])?;
        ip(&["addr", "add", &format!("{PROXY}/30"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        Ok(link)
    }

    /// What a process enters to be there.
    pub fn network(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Bytes that went over the loopback device and the cable so far.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn bytes(&self) -> Result<u64> {
        let cable = network_bytes(&self.name, "rx")? + network_bytes(&self.name, "tx")?;
        Ok(loopback_bytes()? + cable)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // With the network, its end of the cable goes, and so does ours.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    shell::output("ip", arguments).map(drop)
}
