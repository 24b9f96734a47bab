//! Servers that send a byte at a time, with intervals too short to count as stalled, and DataImportCrons that poll
//! them.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::{HOST, Test};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{ask_again, cron, make};
use crate::scenario::Scenario;

/// As many as the controllers poll at once.
const SERVERS: usize = 8;
/// Between two bytes.
const DRIP: Duration = Duration::from_secs(4);
/// Between two demands.
const PAUSE: u64 = 30;

/// The servers, until this is dropped.
pub struct Drips {
    ports: Vec<u16>,
    listening: Vec<JoinHandle<()>>,
}

impl Drips {
    pub async fn start() -> Result<Self> {
        let (mut ports, mut listening) = (Vec::new(), Vec::new());
        for at in 0..SERVERS {
            let listener = TcpListener::bind((HOST, 0)).await.context("cannot listen")?;
            ports.push(listener.local_addr()?.port());
            listening.push(tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(answer(client, at % 2 == 0));
                }
            }));
        }
        Ok(Self { ports, listening })
    }

    /// A disk at one of the servers.
    pub fn url(&self, at: usize) -> String {
        format!("http://{HOST}:{}/disk.img", self.ports[at % self.ports.len()])
    }
}

impl Drop for Drips {
    fn drop(&mut self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

/// Either headers that never end, or a body.
async fn answer(mut client: TcpStream, in_headers: bool) -> Result<()> {
    let mut request = [0; 4096];
    let _ = client.read(&mut request).await?;
    let begin: &[u8] = if in_headers {
        b"HTTP/1.1 200 OK\r\nX-Slow: "
    } else {
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4000000\r\n\
              Accept-Ranges: bytes\r\n\r\n"
    };
    client.write_all(begin).await?;
    // Until the other side closes: a write to a closed connection fails soon after.
    loop {
        client.write_all(b"a").await?;
        sleep(DRIP).await;
    }
}

pub async fn attack(tenant: &Test, scenario: &Scenario, drips: &Drips) {
    let name = |at: usize| format!("slow-{at}");
    for at in 0..SERVERS {
        let source = json!({ "http": { "url": drips.url(at) } });
        let mut object = cron(&name(at), &source);
        if at % 2 == 1 {
            // The list of checksums is read whole.
            let key = api::annotations::cron::CHECKSUMS_URL;
            object["metadata"]["annotations"] = json!({ key: drips.url(at) });
        }
        make(tenant, scenario, "crons created", "crons refused", object).await;
    }
    while !scenario.is_over() {
        for at in 0..SERVERS {
            ask_again(tenant, scenario, &name(at)).await;
        }
        scenario.pause(PAUSE).await;
    }
}
