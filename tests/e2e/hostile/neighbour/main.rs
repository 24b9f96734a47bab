//! `neighbour`: the attacks of a pod without credentials on the programs of the installation. It runs in pods of
//! hostile tenants.
//!
//! `neighbour SECONDS ATTACK…`: each attack is `KIND:AT_ONCE:EACH_SECOND:ADDRESS:PORT`, for example
//! `silent:100:10:10.97.0.5:8443`. At most `AT_ONCE` connections are held, and at most `EACH_SECOND` are opened in a second.
//! After so many seconds all ends, and a line of JSON reports how often each attack ran and how its connections ended.
//!
//! `neighbour canary PORT SECONDS`: listens there on all addresses of its network namespace, and prints a line for each
//! connection: the address that it was made to.

mod canary;
mod connection;
mod request;
mod tls;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// The address of a program that is down or drops packets.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match *words.as_slice() {
        ["canary", port, seconds] => {
            runtime.block_on(canary::listen(port.parse()?, Duration::from_secs(seconds.parse()?)))
        }
        [seconds, ref attacks @ ..] => {
            let attacks = attacks.iter().map(|word| word.parse()).collect::<Result<Vec<_>>>()?;
            let end = Instant::now() + Duration::from_secs(seconds.parse()?);
            runtime.block_on(run(attacks, end))
        }
        [] => anyhow::bail!("neighbour SECONDS ATTACK…, or neighbour canary PORT SECONDS"),
    }
}

/// What a connection does once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing at all.
    Silent,
    /// The beginning of a TLS handshake, a byte at a time.
    Handshake,
    /// Nothing after the TLS handshake.
    Idle,
    /// A request whose headers never end.
    Headers,
    /// HTTP/2 without a request, which acknowledges every ping and sends its own.
    Http2,
    /// `/healthz` every few seconds, on a connection that is kept open.
    Health,
    /// One call of the webhook that judges PVCs, for a storage class that does not exist.
    Webhook,
    /// The same with a body of a mebibyte.
    LargeWebhook,
    /// One request of `/metrics` with a bearer token that is none.
    Bearer,
    /// One upload with a token that is none.
    Upload,
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        Ok(match word {
            "silent" => Self::Silent,
            "handshake" => Self::Handshake,
            "idle" => Self::Idle,
            "headers" => Self::Headers,
            "http2" => Self::Http2,
            "health" => Self::Health,
            "webhook" => Self::Webhook,
            "large-webhook" => Self::LargeWebhook,
            "bearer" => Self::Bearer,
            "upload" => Self::Upload,
            _ => anyhow::bail!("there is no attack {word}"),
        })
    }
}

struct Attack {
    word: String,
    kind: Kind,
    at_once: usize,
    each_second: f64,
    address: String,
    count: Count,
}

#[derive(Default)]
struct Count {
    opened: AtomicU64,
    /// The other side did not accept, or did not finish the TLS handshake.
    refused: AtomicU64,
    /// The other side ended the connection, by itself or with a response.
    ended: AtomicU64,
}

impl FromStr for Attack {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        let parts: Vec<_> = word.splitn(4, ':').collect();
        let [kind, at_once, each_second, address] = parts.as_slice() else {
            anyhow::bail!("{word} is not KIND:AT_ONCE:EACH_SECOND:ADDRESS:PORT")
        };
        let each_second: f64 = each_second.parse()?;
        ensure!(each_second > 0.0, "{word} opens nothing");
        Ok(Self {
            word: (*kind).to_owned(),
            kind: kind.parse()?,
            at_once: at_once.parse()?,
            each_second,
            address: (*address).to_owned(),
            count: Count::default(),
        })
    }
}

async fn run(attacks: Vec<Attack>, end: Instant) -> Result<()> {
    let tls = tls::Clients::new()?;
    let attacks: Vec<_> = attacks.into_iter().map(Arc::new).collect();
    for attack in &attacks {
        tokio::spawn(keep_up(attack.clone(), tls.clone()));
    }
    sleep_until(end).await;
    let lines = attacks.iter().map(|attack| {
        let count = &attack.count;
        json!({
            "attack": attack.word, "address": attack.address, "opened": count.opened.load(Relaxed),
            "refused": count.refused.load(Relaxed), "ended": count.ended.load(Relaxed),
        })
    });
    println!("{}", serde_json::Value::from_iter(lines));
    Ok(())
}

/// Opens connections as fast and as many as the attack may have, until the program ends.
async fn keep_up(attack: Arc<Attack>, tls: tls::Clients) {
    let permits = Arc::new(Semaphore::new(attack.at_once));
    let mut clock = interval(Duration::from_secs_f64(1.0 / attack.each_second));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (attack, tls) = (attack.clone(), tls.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let count = &attack.count;
            count.opened.fetch_add(1, Relaxed);
            match open(&attack, &tls).await {
                Ok(()) => count.ended.fetch_add(1, Relaxed),
                Err(_) => count.refused.fetch_add(1, Relaxed),
            };
        });
    }
}

/// One connection from its beginning to its end.
async fn open(attack: &Attack, tls: &tls::Clients) -> Result<()> {
    let socket = timeout(CONNECT_PATIENCE, TcpStream::connect(&attack.address)).await;
    let socket = socket.context("no response")??;
    connection::play(attack.kind, socket, tls).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_is_parsed_from_one_argument() {
        let attack: Attack = "http2:40:0.5:10.97.0.5:8443".parse().unwrap();
        assert_eq!(attack.kind, Kind::Http2);
        assert_eq!((attack.at_once, attack.each_second), (40, 0.5));
        assert_eq!(attack.address, "10.97.0.5:8443");
        for bad in ["http2:40:0:a:1", "http2:40", "flood:1:1:a:1", "silent:x:1:a:1"] {
            assert!(bad.parse::<Attack>().is_err(), "{bad}");
        }
    }
}
