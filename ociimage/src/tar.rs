//! Writing tar archives (POSIX.1-1988, "ustar"), of entries whose names are short, with nothing in them that changes from
//! day to day: no times, no owners.

use std::io;

const BLOCK: usize = 512;

/// A file, directory or symbolic link of an image.
#[derive(Clone, Debug)]
pub struct Entry {
    path: String,
    mode: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    File(Vec<u8>),
    Directory,
    Link(String),
}

impl Entry {
    pub fn directory(path: &str, mode: u32) -> Self {
        Self { path: format!("{path}/"), mode, kind: Kind::Directory }
    }

    pub fn file(path: &str, mode: u32, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode, kind: Kind::File(content) }
    }

    /// A symbolic link.
    pub fn link(path: &str, to: &str) -> Self {
        Self { path: path.to_owned(), mode: 0o777, kind: Kind::Link(to.to_owned()) }
    }

    /// As it stands in the archive.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The whole archive.
///
/// # Errors
/// When a name is too long for the format.
pub fn archive(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    for entry in entries {
        let content = match &entry.kind {
            Kind::File(content) => content.as_slice(),
            Kind::Directory | Kind::Link(_) => &[],
        };
        archive.extend_from_slice(&header(entry, content.len())?);
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    Ok(archive)
}

fn header(entry: &Entry, size: usize) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let (flag, link) = match &entry.kind {
        Kind::File(_) => ("0", ""),
        Kind::Directory => ("5", ""),
        Kind::Link(to) => ("2", to.as_str()),
    };
    if let Some(long) = [&*entry.path, link].into_iter().find(|name| name.len() > 100) {
        return Err(io::Error::other(format!("the name {long} is too long")));
    }
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &entry.path);
    put(100, &format!("{:07o}", entry.mode));
    put(108, "0000000"); // owner
    put(116, "0000000"); // group
    put(124, &format!("{size:011o}"));
    put(136, "00000000000"); // time
    put(148, "        "); // the checksum counts as blanks
    put(156, flag);
    put(157, link);
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header[148..156].copy_from_slice(sum.as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_whole_blocks_with_right_sums() {
        let entries = [
            Entry::directory("a", 0o755),
            Entry::file("a/b", 0o644, vec![7; 513]),
            Entry::link("a/c", "/a/b"),
        ];
        let whole = archive(&entries).unwrap();
        assert_eq!(whole.len(), (1 + 1 + 2 + 1 + 2) * BLOCK);
        for at in [0, BLOCK] {
            let header = &whole[at..at + BLOCK];
            let stored = u32::from_str_radix(std::str::from_utf8(&header[148..154]).unwrap(), 8);
            let blanks = 8 * u32::from(b' ');
            let others = header[..148].iter().chain(&header[156..]).map(|byte| u32::from(*byte));
            assert_eq!(stored, Ok(others.sum::<u32>() + blanks));
        }
        assert_eq!(&whole[BLOCK + 124..BLOCK + 135], b"00000001001");
        assert_eq!(&whole[4 * BLOCK + 156..4 * BLOCK + 162], b"2/a/b\0");
        assert!(archive(&[Entry::directory(&"x".repeat(101), 0)]).is_err());
    }
}
