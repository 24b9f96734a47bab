//! What a request is answered with. No sockets here.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use super::ServeError;

/// The file that is served.
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) file: File,
    length: u64,
    /// Changes whenever the bytes do.
    etag: String,
    modified: String,
}

/// A head but for its last lines, and what follows it: bytes, or a part of the disk (first byte and length).
pub(super) struct ServedResponse {
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    pub(super) part: Option<(u64, u64)>,
}

impl Disk {
    pub(super) fn open(path: &Path) -> Result<Self, ServeError> {
        let failed =
            |source| ServeError::Io { what: "open", place: path.display().to_string(), source };
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(std::io::Error::other("its name is not text")))?;
        let modified = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Self {
            name: name.to_owned(),
            length: found.len(),
            etag: format!("\"{:x}-{:x}-{:x}\"", found.ino(), found.len(), found.mtime_nsec()),
            modified: httpdate::fmt_http_date(modified),
            file,
        })
    }
}

/// The response to a request.
pub(super) fn answer(request: &httparse::Request<'_, '_>, disk: &Disk) -> ServedResponse {
    let head_only = request.method == Some("HEAD");
    if !head_only && request.method != Some("GET") {
        return text("405 Method Not Allowed", "text/plain", b"only GET and HEAD\n", head_only);
    }
    let path = request.path.unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    match path.strip_prefix('/') {
        Some("info") if disk.name != "info" => {
            text("200 OK", "application/json", &environment(), head_only)
        }
        Some(name) if name == disk.name => part_of(request, disk, head_only),
        _ => text("404 Not Found", "text/plain", b"404 page not found\n", head_only),
    }
}

/// The environment of this process, which is that of the image.
fn environment() -> Vec<u8> {
    let entries: Vec<_> = std::env::vars_os()
        .map(|(key, value)| format!("{}={}", key.to_string_lossy(), value.to_string_lossy()))
        .collect();
    serde_json::json!({ "env": entries }).to_string().into_bytes()
}

fn text(status: &str, kind: &str, body: &[u8], head_only: bool) -> ServedResponse {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
    ServedResponse { head, body: if head_only { Vec::new() } else { body.to_vec() }, part: None }
}

fn part_of(request: &httparse::Request<'_, '_>, disk: &Disk, head_only: bool) -> ServedResponse {
    let Disk { length, etag, modified, .. } = disk;
    let common = format!(
        "Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\nETag: {etag}\r\n\
         Last-Modified: {modified}\r\n"
    );
    let header = |wanted: &str| {
        let found = request.headers.iter().find(|line| line.name.eq_ignore_ascii_case(wanted))?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    let same = header("if-range").is_none_or(|known| known == etag || known == modified);
    let wanted = header("range").filter(|_| same).and_then(|range| parse(range, *length));
    let (status, range, at, length) = match wanted {
        Some(RequestedRange::Part(at, end)) => {
            let range = format!("Content-Range: bytes {at}-{}/{length}\r\n", end - 1);
            ("206 Partial Content", range, at, end - at)
        }
        Some(RequestedRange::Behind) => {
            let range = format!("Content-Range: bytes */{length}\r\n");
            ("416 Range Not Satisfiable", range, 0, 0)
        }
        None => ("200 OK", String::new(), 0, *length),
    };
    let head = format!("HTTP/1.1 {status}\r\n{common}{range}Content-Length: {length}\r\n");
    ServedResponse {
        head,
        body: Vec::new(),
        part: (!head_only && length > 0).then_some((at, length)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    /// First byte, and the one after the last.
    Part(u64, u64),
    /// There are no such bytes.
    Behind,
}

/// One range. Anything else, several for instance, is answered with the whole.
fn parse(range: &str, length: u64) -> Option<RequestedRange> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    if first.trim().is_empty() {
        let count = number(last)?.min(length);
        return Some(if count == 0 {
            RequestedRange::Behind
        } else {
            RequestedRange::Part(length - count, length)
        });
    }
    let first = number(first)?;
    let end = match last.trim() {
        "" => length,
        last => number(last).filter(|last| *last >= first)?.saturating_add(1).min(length),
    };
    Some(if first < length { RequestedRange::Part(first, end) } else { RequestedRange::Behind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped_to_the_disk() {
        let table = [
            ("bytes=0-9", Some(RequestedRange::Part(0, 10))),
            ("bytes=90-200", Some(RequestedRange::Part(90, 100))),
            ("bytes=90-", Some(RequestedRange::Part(90, 100))),
            ("bytes=-10", Some(RequestedRange::Part(90, 100))),
            ("bytes=-1000", Some(RequestedRange::Part(0, 100))),
            ("bytes=100-", Some(RequestedRange::Behind)),
            ("bytes=-0", Some(RequestedRange::Behind)),
            ("bytes=9-0", None),
            ("bytes=0-1,5-6", None),
            ("bytes=-", None),
            ("lines=0-1", None),
            ("bytes=0-18446744073709551615", Some(RequestedRange::Part(0, 100))),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text, 100), expected, "{text}");
        }
    }
}
