//! Listens where only the programs of one pod can connect, and reports that they did.

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Listens on `port` of all addresses, of IPv4 too.
pub async fn listen(port: u16, duration: Duration) -> Result<()> {
    let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(address).await.context("cannot listen")?;
    println!("listening");
    let accept = async {
        while let Ok((mut socket, _)) = listener.accept().await {
            if let Ok(address) = socket.local_addr() {
                println!("{}", address.ip().to_canonical());
            }
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = timeout(Duration::from_secs(1), socket.read(&mut request)).await;
                let answer = b"HTTP/1.1 200 OK\r\nETag: \"canary\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = socket.write_all(answer).await;
            });
        }
    };
    let _ = timeout(duration, accept).await;
    Ok(())
}
