//! Real NBD servers: nbdkit and qemu-nbd, behind sockets of their own.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::Running;
use crate::tls::Authority;
use crate::tool::require_tool;

/// A server on a socket. Killed on drop.
#[derive(Debug)]
pub struct NbdServer {
    folder: TempDir,
    _running: Running,
}

impl NbdServer {
    /// `nbdkit` with these arguments: filters, a plugin and its settings. `None` where there is no nbdkit: the test is skipped.
    ///
    /// # Panics
    /// When it does not begin to listen.
    pub fn nbdkit<S: AsRef<str>>(arguments: &[S]) -> Option<Self> {
        let tool = require_tool("nbdkit")?;
        let folder = tempfile::tempdir().expect("cannot make a folder");
        let socket = folder.path().join("nbd.sock");
        let mut command = tool.command(["--foreground", "--readonly", "--exit-with-parent"]);
        command.arg("--unix").arg(&socket).args(arguments.iter().map(AsRef::as_ref));
        Some(Self::started(folder, Running::start(&mut command)))
    }

    /// `nbdkit` that insists on TLS, and the PEM text of the authority to trust for it.
    ///
    /// # Panics
    /// When it does not begin to listen.
    pub fn nbdkit_tls<S: AsRef<str>>(arguments: &[S]) -> Option<(Self, String)> {
        let tool = require_tool("nbdkit")?;
        let folder = tempfile::tempdir().expect("cannot make a folder");
        let authority = Authority::new();
        let [certificate, key] = &authority.server_pem;
        let files = [
            ("ca-cert.pem", &authority.ca_pem),
            ("server-cert.pem", certificate),
            ("server-key.pem", key),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("cannot write a certificate");
        }
        let socket = folder.path().join("nbd.sock");
        let mut command = tool.command(["--foreground", "--readonly", "--tls=require"]);
        command.arg(format!("--tls-certificates={}", folder.path().display()));
        command.arg("--unix").arg(&socket).args(arguments.iter().map(AsRef::as_ref));
        let server = Self::started(folder, Running::start(&mut command));
        Some((server, authority.ca_pem))
    }

    /// `qemu-nbd` of an image in `format`, for as many clients as come.
    ///
    /// # Panics
    /// When it does not begin to listen.
    pub fn qemu(image: &Path, format: &str) -> Option<Self> {
        let tool = require_tool("qemu-nbd")?;
        let folder = tempfile::tempdir().expect("cannot make a folder");
        let socket = folder.path().join("nbd.sock");
        let arguments = ["--read-only", "--persistent", "--shared=8", "--format", format];
        let mut command = tool.command(arguments);
        command.arg("--socket").arg(&socket).arg(image);
        Some(Self::started(folder, Running::start(&mut command)))
    }

    fn started(folder: TempDir, running: Running) -> Self {
        let server = Self { folder, _running: running };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(server.socket()).is_err() {
            assert!(Instant::now() < deadline, "the NBD server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    /// The address of its export without a name.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }
}
