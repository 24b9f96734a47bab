//! What does not fit into a header, and is said before it.

use super::header::{Header, Type, text, unsupported};
use super::{Entry, Kind, corrupt};
use crate::Error;

/// What pax records and GNU's long names say about the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Overrides {
    /// Takes the content of the entry of that kind whose header was at `at`.
    pub(super) fn take(&mut self, kind: Type, bytes: &[u8], at: u64) -> Result<(), Error> {
        match kind {
            Type::LongName => self.path = Some(text(bytes).to_vec()),
            Type::LongLink => self.link = Some(text(bytes).to_vec()),
            _ => self.take_records(bytes, at)?,
        }
        Ok(())
    }

    /// The entry that a header and all before it describe.
    pub(super) fn apply(self, header: Header, kind: Type) -> Result<Entry, Error> {
        let link = self.link.unwrap_or(header.link);
        let size = self.size.unwrap_or(header.size);
        let path = self.path.unwrap_or(header.path);
        let (kind, size) = match kind {
            Type::Regular => (Kind::Regular, size),
            // A size is sometimes given here, but never content.
            Type::Directory => (Kind::Directory, 0),
            Type::Symlink => (Kind::Symlink(link), 0),
            Type::HardLink => (Kind::HardLink(link), 0),
            _ => (Kind::Other, size),
        };
        // So that nobody who adds a block or two need think of an overflow.
        if size > 1 << 62 {
            return Err(corrupt(header.at, "a size is impossible"));
        }
        Ok(Entry { path, kind, size, mode: header.mode })
    }

    /// Records are `length key=value\n`, where the length counts all of it.
    fn take_records(&mut self, mut bytes: &[u8], at: u64) -> Result<(), Error> {
        let wrong = || corrupt(at, "a pax record is malformed");
        while !bytes.is_empty() {
            let space = bytes.iter().position(|&byte| byte == b' ').ok_or_else(wrong)?;
            let length: usize = digits(&bytes[..space]).ok_or_else(wrong)? as usize;
            let record = bytes.get(space + 1..length).ok_or_else(wrong)?;
            let (newline, record) = record.split_last().ok_or_else(wrong)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(wrong)?;
            if *newline != b'\n' {
                return Err(wrong());
            }
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" | b"linkpath" if value.contains(&0) => return Err(wrong()),
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(digits(value).ok_or_else(wrong)?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    return Err(unsupported("a file with holes"));
                }
                _ => {}
            }
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
