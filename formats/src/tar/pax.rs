//! Extended headers: values that do not fit into the header that follows.

use super::header::{Header, Type, text, unsupported};
use super::holes::Holes;
use super::{Entry, Kind, corrupt};
use crate::Error;

/// The attributes that pax records and GNU's long names give to the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: Option<Sparse>,
}

/// The records about the holes of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sparse {
    /// 1: the map is before the content.
    major: u64,
    size: Option<u64>,
    name: Option<Vec<u8>>,
    pieces: Vec<(u64, u64)>,
    /// Of the piece whose length comes next.
    offset: Option<u64>,
}

impl Overrides {
    /// Reads the content of an entry of that kind whose header was at `at`.
    pub(super) fn read_entry(&mut self, kind: Type, bytes: &[u8], at: u64) -> Result<(), Error> {
        match kind {
            Type::LongName => self.path = Some(text(bytes).to_vec()),
            Type::LongLink => self.link = Some(text(bytes).to_vec()),
            _ => self.take_records(bytes, at)?,
        }
        Ok(())
    }

    /// The entry that a header and all before it describe.
    /// The size is of what the archive holds of it.
    pub(super) fn apply(self, header: Header, kind: Type) -> Result<(Entry, Option<Holes>), Error> {
        let link = self.link.unwrap_or(header.link);
        let size = self.size.unwrap_or(header.size);
        let mut path = self.path.unwrap_or(header.path);
        let holes = match self.sparse {
            _ if kind != Type::Regular => None,
            None => header.holes,
            Some(sparse) => {
                path = sparse.name.unwrap_or(path);
                let size = sparse.size.unwrap_or(0); // no piece fits into that
                Some(match sparse.major {
                    0 => Holes::Listed { pieces: sparse.pieces, size },
                    1 => Holes::InContent { size },
                    _ => return Err(unsupported("a file with holes")),
                })
            }
        };
        let (kind, size) = match kind {
            Type::Regular => (Kind::Regular, size),
            // A size is sometimes given here, but never content.
            Type::Directory => (Kind::Directory, 0),
            Type::Symlink => (Kind::Symlink(link), 0),
            Type::HardLink => (Kind::HardLink(link), 0),
            _ => (Kind::Other, size),
        };
        // So that adding a block or two cannot overflow.
        if size > 1 << 62 {
            return Err(corrupt(header.at, "a size is impossible"));
        }
        Ok((Entry { path, kind, size, mode: header.mode }, holes))
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
                _ => {
                    if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                        let sparse = self.sparse.get_or_insert_default();
                        sparse.set(key, value).ok_or_else(wrong)?;
                    }
                }
            }
            bytes = &bytes[length..];
        }
        Ok(())
    }
}

impl Sparse {
    /// `None` where the value is not what it should be. A key that is not known does not describe the map.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"major" => self.major = digits(value)?,
            b"size" | b"realsize" => self.size = Some(digits(value)?),
            b"name" if value.contains(&0) => return None,
            b"name" => self.name = Some(value.to_vec()),
            b"offset" => self.offset = Some(digits(value)?),
            b"numbytes" => self.pieces.push((self.offset.take()?, digits(value)?)),
            b"map" if value.is_empty() => {}
            b"map" => {
                let mut numbers = value.split(|byte| *byte == b',').map(digits);
                while let Some(offset) = numbers.next() {
                    self.pieces.push((offset?, numbers.next()??));
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}
