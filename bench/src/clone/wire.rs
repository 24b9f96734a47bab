//! What lies between cloner and upload server: loopback, or a simulated network.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::network::scenario::{self, Scenario};
use crate::network::tunnel::{Namespace, SERVER, Tunnel};
use crate::party::{Pod, loopback_bytes};
use crate::work::WorkFolder;

/// The names of the server's certificate: on loopback, and in the simulated network.
pub(super) const SERVER_NAMES: [&str; 2] = ["localhost", "upload-server.bench"];

/// The connection of both pods.
pub(super) struct Wire(Option<Simulated>);

/// The server is in a network namespace of its own.
struct Simulated {
    tunnel: Tunnel,
    namespace: Namespace,
    scenario: &'static Scenario,
    /// For the cloner: the address of the server's name.
    hosts: PathBuf,
}

impl Wire {
    /// Loopback, or the first network whose name contains `name`.
    ///
    /// # Errors
    /// When there is none, or it cannot be created: it takes root.
    pub(super) fn new(name: Option<&str>, work: &WorkFolder) -> Result<Self> {
        let Some(name) = name else { return Ok(Self(None)) };
        let scenario = scenario::ALL.iter().find(|scenario| scenario.name.contains(name));
        let scenario = scenario.with_context(|| format!("no simulated network is named {name}"))?;
        let namespace = Namespace::new()?;
        let tunnel = Tunnel::new(scenario.link, &namespace)?;
        let hosts = work.file("hosts", &format!("{SERVER} {}\n", SERVER_NAMES[1]))?;
        Ok(Self(Some(Simulated { tunnel, namespace, scenario, hosts })))
    }

    /// As reports name it.
    pub(super) fn name(&self) -> &'static str {
        self.0.as_ref().map_or("loopback", |simulated| simulated.scenario.name)
    }

    /// The server's name for the cloner.
    pub(super) fn server_name(&self) -> &'static str {
        SERVER_NAMES[usize::from(self.0.is_some())]
    }

    /// The server's address.
    pub(super) fn address(&self) -> &'static str {
        if self.0.is_some() { SERVER } else { "127.0.0.1" }
    }

    /// The pod of the upload server, at its end.
    pub(super) fn connect_server(&self, pod: Pod) -> Pod {
        let pod = pod.with("LISTEN_ADDRESS", self.address());
        match &self.0 {
            Some(simulated) => pod.within(simulated.namespace.path().into()),
            None => pod,
        }
    }

    /// The pod of the cloner, at this end.
    pub(super) fn connect_cloner(&self, pod: Pod) -> Pod {
        match &self.0 {
            Some(simulated) => pod.mount(&simulated.hosts, "/etc/hosts"),
            None => pod,
        }
    }

    /// Bytes in both directions so far, with the headers of all layers.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub(super) fn bytes(&self) -> Result<u64> {
        self.0.as_ref().map_or_else(loopback_bytes, |simulated| simulated.tunnel.bytes())
    }
}
