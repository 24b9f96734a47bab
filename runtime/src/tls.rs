//! Buffering below TLS.

use tokio::io::{AsyncRead, BufReader};
use tokio::net::TcpStream;

/// A connection below TLS, read in large reads: rustls by itself reads 4 KiB at a time.
pub type Wire<S = TcpStream> = BufReader<S>;

/// Several TLS records (16 KiB each).
const WIRE_BUFFER: usize = 128 << 10;

pub fn wire<S: AsyncRead>(connection: S) -> Wire<S> {
    BufReader::with_capacity(WIRE_BUFFER, connection)
}
