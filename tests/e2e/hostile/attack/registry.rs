//! A tenant's registry that requires a password, and crons that name a Secret of the installation for it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use e2e::{HOST, Test, tls_acceptor};
use parking_lot::Mutex;
use serde_json::json;
use testkit::ServerCertificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{ask_again, cron, make};
use crate::scenario::{ACCOUNT, AUTHORITY, CANARY_PORT, Scenario};

/// Between two demands.
const PAUSE: u64 = 15;
/// No client sends longer headers.
const HEAD_MAX: usize = 16 << 10;
/// The prefix of paths that redirect to the controllers' own loopback.
pub const REDIRECT: &str = "/redirect";

/// The registry, until it is dropped: it requires a password for every request, and records the passwords that it gets.
pub struct Trap {
    /// Where it listens.
    pub address: SocketAddr,
    noted: Arc<Mutex<Noted>>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct Noted {
    requests: u64,
    /// Each value of an `Authorization` header.
    passwords: Vec<String>,
}

impl Trap {
    pub async fn start(certificate: &ServerCertificate) -> Result<Self> {
        let tls = tls_acceptor(certificate)?;
        let listener = TcpListener::bind((HOST, 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        let noted = Arc::new(Mutex::new(Noted::default()));
        let notes = noted.clone();
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, notes) = (tls.clone(), notes.clone());
                tokio::spawn(async move {
                    if let Ok(client) = tls.accept(client).await {
                        let _ = answer(client, &notes).await;
                    }
                });
            }
        });
        Ok(Self { address, noted, listening })
    }

    /// The number of requests.
    pub fn requests(&self) -> u64 {
        self.noted.lock().requests
    }

    /// Fails if it was sent a password: no tenant has one for it, so it is the installation's.
    pub fn check(&self) -> Result<()> {
        let noted = self.noted.lock();
        let sent = noted.passwords.len();
        ensure!(
            sent == 0,
            "a tenant's registry was sent a Secret of the installation {sent} times"
        );
        Ok(())
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn answer(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    notes: &Mutex<Noted>,
) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    {
        let mut notes = notes.lock();
        notes.requests += 1;
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let passwords = lines.filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        notes.passwords.extend(passwords.map(|(_, value)| value.trim().to_owned()));
    }
    let answer = if path.starts_with(REDIRECT) {
        format!(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{CANARY_PORT}/redirected\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
    } else {
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"hostile\"\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
            .to_owned()
    };
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

pub async fn attack(tenant: &Test, scenario: &Scenario, trap: &Trap) {
    const NAME: &str = "wants-secret";
    let source = json!({ "registry": {
        "url": format!("docker://{}/hostile/image:latest", trap.address),
        "secretRef": ACCOUNT, "certConfigMap": AUTHORITY,
    } });
    make(tenant, scenario, "crons created", "crons refused", cron(NAME, &source)).await;
    while !scenario.is_over() {
        ask_again(tenant, scenario, NAME).await;
        scenario.pause(PAUSE).await;
    }
}
