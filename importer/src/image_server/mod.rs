//! Node pull, the serving end: a program that runs inside a container disk, which the node has pulled, and hands the disk
//! to the importer in the other container of the pod.
//!
//! Two files in a directory that both containers see are the whole protocol. The ready file holds the disk's name, and
//! appears once the server accepts connections. The importer creates the done file, which ends the program.

mod answer;
mod config;
pub mod shell;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use answer::{Disk, ServedResponse, answer};
pub use config::{Config, Parsed, USAGE};

/// How often the done file is searched, and connections are taken.
const POLL: Duration = Duration::from_millis(100);
/// The importer has no use for more.
const CONNECTIONS_MAX: usize = 64;
const REQUEST_LEN_MAX: usize = 16 << 10;
/// A connection without a request is closed after this time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Names printed at the start.
const LISTED_MAX: usize = 1000;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("bootc image detected: it is a bootable container and holds no disk")]
    Bootc,
    #[error("{} does not hold exactly one regular file, the disk: {because}", directory.display())]
    Directory {
        /// Where the disk should be.
        directory: PathBuf,
        because: String,
    },
    /// A file or a socket.
    #[error("cannot {what} {place}")]
    Io { what: &'static str, place: String, source: io::Error },
}

/// Serves until the done file appears, or `stop` is set.
///
/// # Errors
/// When there is not exactly one disk, or the ready file cannot be written.
pub fn serve(config: &Config, stop: &Arc<AtomicBool>) -> Result<(), ServeError> {
    if ["sysroot", "ostree"].iter().any(|name| config.root.join(name).exists()) {
        return Err(ServeError::Bootc);
    }
    let disk = Arc::new(Disk::open(&only_file(&config.image_dir)?)?);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, config.port));
    let failed = |what, place: String| move |source| ServeError::Io { what, place, source };
    let listener = TcpListener::bind(address).map_err(failed("listen on", address.to_string()))?;
    listener.set_nonblocking(true).map_err(failed("listen on", address.to_string()))?;
    let name = disk.name.clone();
    write_ready(&config.ready_file, &name)
        .map_err(failed("write", config.ready_file.display().to_string()))?;
    println!("serving {name} on {address}");
    let running = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::SeqCst) && !config.done_file.exists() {
        match listener.accept() {
            Ok((stream, _)) => start_connection(stream, &disk, &running),
            Err(_) => std::thread::sleep(POLL), // no connection, or out of descriptors
        }
    }
    for path in [&config.done_file, &config.ready_file] {
        let _ = fs::remove_file(path); // another process may have removed it
    }
    Ok(())
}

fn start_connection(stream: TcpStream, disk: &Arc<Disk>, running: &Arc<AtomicUsize>) {
    if running.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        running.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let (disk, count) = (Arc::clone(disk), Arc::clone(running));
    let serve = move || {
        let _ = serve_connection(stream, &disk); // a client that has gone is no failure
        count.fetch_sub(1, Ordering::SeqCst);
    };
    if std::thread::Builder::new().spawn(serve).is_err() {
        running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Requests of one connection, one after another.
fn serve_connection(mut stream: TcpStream, disk: &Disk) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut inbox = Vec::new();
    loop {
        let mut lines = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut lines);
        let length = match request.parse(&inbox).map_err(io::Error::other)? {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if inbox.len() >= REQUEST_LEN_MAX => return Ok(()),
            httparse::Status::Partial => {
                let mut piece = [0; 4096];
                match stream.read(&mut piece)? {
                    0 => return Ok(()),
                    count => inbox.extend_from_slice(&piece[..count]),
                }
                continue;
            }
        };
        let keep = request.version == Some(1) && !asks_to_close(&request);
        let ServedResponse { head, body, part } = answer(&request, disk);
        let connection = if keep { "keep-alive" } else { "close" };
        stream.write_all(format!("{head}Connection: {connection}\r\n\r\n").as_bytes())?;
        stream.write_all(&body)?;
        if let Some((at, length)) = part {
            send(&disk.file, at, length, &mut stream)?;
        }
        if !keep {
            return Ok(());
        }
        inbox.drain(..length);
    }
}

fn asks_to_close(request: &httparse::Request<'_, '_>) -> bool {
    // An unexpected body would be parsed as the next request.
    let mut names = request.headers.iter().map(|header| (header.name, header.value));
    names.any(|(name, value)| {
        name.eq_ignore_ascii_case("content-length")
            || name.eq_ignore_ascii_case("transfer-encoding")
            || (name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case(b"close"))
    })
}

/// A part of the disk, without a copy through this program.
fn send(file: &File, mut at: u64, length: u64, stream: &mut TcpStream) -> io::Result<()> {
    let end = at + length;
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::sendfile(&*stream, file, Some(&mut at), most) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {} // moves `at` on
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The only regular file of a directory. The content is logged, for diagnosis.
fn only_file(directory: &Path) -> Result<PathBuf, ServeError> {
    let refuse =
        |because: String| ServeError::Directory { directory: directory.to_owned(), because };
    let list = || -> io::Result<Vec<(PathBuf, fs::FileType)>> {
        let entries = fs::read_dir(directory)?.take(LISTED_MAX);
        entries
            .map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))))
            .collect()
    };
    let entries = list().map_err(|error| refuse(error.to_string()))?;
    for (path, _) in &entries {
        println!("{}", path.display());
    }
    match entries.as_slice() {
        [(path, kind)] if kind.is_file() => Ok(path.clone()),
        [(_, kind)] if kind.is_dir() => Err(refuse("it holds another folder".into())),
        [_] => Err(refuse("it holds something else".into())),
        [] => Err(refuse("it is empty".into())),
        several => Err(refuse(format!("it holds {} entries", several.len()))),
    }
}

/// Atomically: a reader of the file sees the whole name.
fn write_ready(path: &Path, name: &str) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&partial)?.write_all(name.as_bytes())?;
    fs::rename(&partial, path)
}

#[cfg(test)]
mod tests;
