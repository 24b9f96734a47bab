//! What TLS is spoken over.

use tokio::io::{AsyncRead, BufReader};
use tokio::net::TcpStream;

/// A connection below TLS, read in large pieces: TLS by itself asks for 4 KiB at a time.
pub type Wire<S = TcpStream> = BufReader<S>;

/// Some records of TLS. So much is taken in a read, and as little of it touched as has come.
const WIRE_BUFFER: usize = 128 << 10;

/// To be read in large pieces.
pub fn wire<S: AsyncRead>(connection: S) -> Wire<S> {
    BufReader::with_capacity(WIRE_BUFFER, connection)
}
