//! Writing tar archives (POSIX.1-1988, "ustar"), of entries whose names are short, with nothing in them that changes from
//! day to day: no times, no owners.

use std::io::{self, Write};

const BLOCK: usize = 512;

/// A file, folder or symbolic link.
pub struct Entry {
    path: String,
    mode: u32,
    kind: Kind,
}

enum Kind {
    File(Vec<u8>),
    Folder,
    Link(String),
}

impl Entry {
    /// A folder.
    pub fn folder(path: &str, mode: u32) -> Self {
        Self { path: format!("{path}/"), mode, kind: Kind::Folder }
    }

    /// A file.
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

/// Writes an archive.
///
/// # Errors
/// Of `to`; and when a name is too long for the format.
pub fn write(mut to: impl Write, entries: &[Entry]) -> io::Result<()> {
    for entry in entries {
        let content = match &entry.kind {
            Kind::File(content) => content.as_slice(),
            Kind::Folder | Kind::Link(_) => &[],
        };
        to.write_all(&header(entry, content.len())?)?;
        to.write_all(content)?;
        to.write_all(&vec![0; content.len().next_multiple_of(BLOCK) - content.len()])?;
    }
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()
}

fn header(entry: &Entry, size: usize) -> io::Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let (flag, link) = match &entry.kind {
        Kind::File(_) => ("0", ""),
        Kind::Folder => ("5", ""),
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
        let mut archive = Vec::new();
        let entries = [
            Entry::folder("a", 0o755),
            Entry::file("a/b", 0o644, vec![7; 513]),
            Entry::link("a/c", "/a/b"),
        ];
        write(&mut archive, &entries).unwrap();
        assert_eq!(archive.len(), (1 + 1 + 2 + 1 + 2) * BLOCK);
        for at in [0, BLOCK] {
            let header = &archive[at..at + BLOCK];
            let stored = u32::from_str_radix(std::str::from_utf8(&header[148..154]).unwrap(), 8);
            let blanks = 8 * u32::from(b' ');
            let others = header[..148].iter().chain(&header[156..]).map(|byte| u32::from(*byte));
            assert_eq!(stored, Ok(others.sum::<u32>() + blanks));
        }
        assert_eq!(&archive[BLOCK + 124..BLOCK + 135], b"00000001001");
        assert_eq!(&archive[4 * BLOCK + 156..4 * BLOCK + 162], b"2/a/b\0");
        assert!(write(Vec::new(), &[Entry::folder(&"x".repeat(101), 0)]).is_err());
    }
}
