//! An nginx of our own on loopback.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Serves a folder until dropped.
pub struct Nginx {
    process: Child,
    address: SocketAddr,
    scheme: &'static str,
}

impl Nginx {
    /// Starts it; its own files go to `work`.
    ///
    /// # Errors
    /// When it cannot be started or does not respond.
    pub fn start(folder: &Path, work: &Path) -> Result<Self> {
        Self::launch(free_address()?, "http", "", folder, work, None)
    }

    /// The same over TLS 1.3, as `localhost`, with the files of its certificate and key.
    ///
    /// # Errors
    /// As [`Nginx::start`].
    pub fn start_tls(certificate: &Path, key: &Path, folder: &Path, work: &Path) -> Result<Self> {
        let settings = format!(
            "ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.3;",
            certificate.display(),
            key.display()
        );
        Self::launch(free_address()?, "https", &settings, folder, work, None)
    }

    /// Starts it in another network namespace (a file, as `nsenter` takes it), at an address that can be reached from here. `settings`
    /// are further ones of the server.
    ///
    /// # Errors
    /// As [`Nginx::start`].
    pub fn start_in(
        namespace: &str,
        address: SocketAddr,
        settings: &str,
        folder: &Path,
        work: &Path,
    ) -> Result<Self> {
        Self::launch(address, "http", settings, folder, work, Some(namespace))
    }

    fn launch(
        address: SocketAddr,
        scheme: &'static str,
        settings: &str,
        folder: &Path,
        work: &Path,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let home = work.join("nginx");
        let listen = if scheme == "https" { "ssl" } else { "" };
        let settings = format!(
            "sendfile on; tcp_nopush on;
    server {{ listen {address} {listen}; root {folder}; {settings} location /bench/ {{ alias {folder}/; }} }}",
            folder = folder.display(),
        );
        let mut command = command(&home, &home.join("bodies"), &settings)?;
        if let Some(namespace) = namespace {
            let mut within = Command::new("nsenter");
            within.arg(format!("--net={namespace}")).arg(command.get_program());
            within.args(command.get_args());
            command = within;
        }
        let process = command.stdin(Stdio::null()).spawn().context("cannot start nginx")?;
        let mut server = Self { process, address, scheme };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Where a file of the folder is found.
    pub fn url(&self, file: &str) -> String {
        // The certificate is for this name.
        let host =
            if self.scheme == "https" { "localhost".into() } else { self.address.ip().to_string() };
        format!("{}://{host}:{}/{file}", self.scheme, self.address.port())
    }

    /// The same as a store of objects: every file of the folder is in a bucket of the name `bench`.
    pub fn store(&self) -> String {
        format!("http://{}", self.address)
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        for _ in 0..100 {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait().context("cannot look at nginx")? {
                bail!("nginx ended at once: {status}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("nginx does not respond")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A kill would leave its workers behind; a plain stop takes them along.
        let stopped = kill_process(Pid::from_child(&self.process), Signal::TERM);
        if stopped.is_ok() {
            drop(self.process.wait());
        }
    }
}

/// A port that was free just now: not all servers can choose one by themselves.
pub fn free_address() -> Result<SocketAddr> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    probe.local_addr().context("a listener without address")
}

/// An nginx with these `settings` in its `http` block. Its own files go to `home`, which is made, and what is
/// sent to it waits in `bodies`. It ends with us, however we end.
///
/// # Errors
/// When its files cannot be written.
pub fn command(home: &Path, bodies: &Path, settings: &str) -> Result<Command> {
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let temporary = ["proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {};\n", home.join(kind).display()));
    let text = format!(
        "daemon off;
user root;
worker_processes 2;
pid {home}/nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path {bodies};
{temporary}    {settings}
}}
",
        home = home.display(),
        bodies = bodies.display(),
        temporary = temporary.concat(),
    );
    let file = home.join("nginx.conf");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "nginx", "-p"]).arg(home);
    command.arg("-e").arg(home.join("error.log")).arg("-c").arg(&file);
    Ok(command)
}
