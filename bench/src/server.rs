//! An nginx of our own on loopback.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Serves a folder until dropped.
pub struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it; its own files go to `work`.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn start(folder: &Path, work: &Path) -> Result<Self> {
        let home = work.join("nginx");
        fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let address = free_address()?;
        let conf = home.join("nginx.conf");
        fs::write(&conf, configuration(folder, &home, address))
            .with_context(|| format!("cannot write {}", conf.display()))?;
        // It ends with us, however we end.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "nginx", "-p"])
            .arg(&home)
            .arg("-e")
            .arg(home.join("error.log"))
            .arg("-c")
            .arg(&conf)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start nginx")?;
        let mut server = Self { process, address };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Where a file of the folder is found.
    pub fn url(&self, file: &str) -> String {
        format!("http://{}/{file}", self.address)
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
        bail!("nginx does not answer")
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

/// A port that was free a moment ago: servers cannot all choose one by themselves.
pub fn free_address() -> Result<SocketAddr> {
    let probe = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    probe.local_addr().context("a listener without address")
}

fn configuration(folder: &Path, home: &Path, address: SocketAddr) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| {
        let path: PathBuf = home.join(kind);
        format!("    {kind}_temp_path {};\n", path.display())
    });
    format!(
        "daemon off;
user root;
worker_processes 2;
pid {home}/nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    default_type application/octet-stream;
{temporary}    server {{ listen {address}; root {folder}; location /bench/ {{ alias {folder}/; }} }}
}}
",
        home = home.display(),
        folder = folder.display(),
        temporary = temporary.concat(),
    )
}
