//! OVA: a tar archive that begins with a description of a machine. The disk inside is a source of its own.
//!
//! Where any part of the archive can be had, the disk's part is read as a file of its own would be. Where not, everything
//! before the disk is passed over, and what follows it is looked at once it has come: a second disk then ends the import.

use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use bytes::{Buf, Bytes};
use formats::tar::{Archive, Entry, Kind, is_tar};

use crate::error::Error;
use crate::routes::read_exact;
use crate::source::{ByteStream, Source, SourceError, SourceFacts};

/// The first look at an archive takes in the description and the header behind it.
const PART: u64 = 64 << 10;
/// An archive of more is no machine.
const MEMBERS_MAX: usize = 4096;
const BLOCK: u64 = 512;
/// Disks are known by their names here, since what else an archive holds (CD images, variables of the firmware) looks like
/// raw disks.
const DISKS: [&str; 8] = [".vmdk", ".vhd", ".vhdx", ".vdi", ".qcow2", ".img", ".raw", ".vmdk.gz"];

/// Whether an image that begins so is an archive whose first member describes a machine.
pub fn is_ova(head: &[u8]) -> bool {
    is_tar(head)
        && matches!(Archive::new(head).next_entry(), Ok(Some(first)) if has_end(&first, ".ovf"))
}

/// Where the disk is in the archive.
struct Place {
    name: String,
    start: u64,
    len: u64,
}

impl Place {
    fn of(entry: &Entry, start: u64) -> Self {
        let name = String::from_utf8_lossy(&entry.path).escape_debug().to_string();
        Self { name, start, len: entry.size }
    }

    /// Where the next header is.
    fn next(&self) -> u64 {
        (self.start + self.len).next_multiple_of(BLOCK) // sizes are below 2^62
    }
}

/// The disk in an OVA, as a source.
pub struct Member<'a> {
    outer: &'a dyn Source,
    facts: SourceFacts,
    place: Place,
    /// The archive from its start, as the first look left it.
    stream: Mutex<Option<Box<dyn ByteStream>>>,
}

impl<'a> Member<'a> {
    /// Finds the one disk in the archive `outer`, which begins with `head`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is none, or several; those of the source and the archive.
    pub fn find(
        outer: &'a dyn Source,
        stream: Option<Box<dyn ByteStream>>,
        head: &[u8],
    ) -> Result<Self, Error> {
        let mut disks = match outer.facts().length {
            Some(length) if outer.facts().ranges => all_disks(outer, length)?,
            _ => first_disk(head).into_iter().collect(),
        };
        let place = match (disks.pop(), disks.first()) {
            (Some(last), Some(first)) => return Err(several(&first.name, &last.name)),
            (Some(only), None) => only,
            (None, _) => {
                let what = format!("an OVA without a disk of a known kind ({})", DISKS.join(", "));
                return Err(Error::Unsupported { what });
            }
        };
        let facts = outer.facts();
        let facts = SourceFacts {
            name: format!("{} in {}", place.name, facts.name),
            length: Some(place.len),
            validator: facts.validator.as_ref().map(|whole| format!("{whole} {}", place.start)),
            ..facts.clone()
        };
        Ok(Self { outer, facts, place, stream: Mutex::new(stream) })
    }
}

impl Source for Member<'_> {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let Place { start, len, .. } = self.place;
        if self.outer.facts().ranges {
            return self.outer.open(start + at, Some(start + end.unwrap_or(len).min(len)));
        }
        let first = self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = first.unwrap_or_else(|| self.outer.open(0, None));
        let padding = self.place.next() - start - len;
        let name = self.place.name.clone();
        Box::new(Inside { stream, rest: Bytes::new(), before: start, left: len, padding, name })
    }

    fn can_reopen(&self) -> bool {
        self.outer.can_reopen()
    }
}

/// The disk's part of a stream.
struct Inside {
    stream: Box<dyn ByteStream>,
    rest: Bytes,
    /// Bytes to pass over first.
    before: u64,
    /// Bytes of the disk.
    left: u64,
    padding: u64,
    name: String,
}

impl Inside {
    /// Up to `len` of the archive's next bytes; none at its end.
    fn take(&mut self, len: u64) -> Result<Bytes, SourceError> {
        if self.rest.is_empty() {
            self.rest = self.stream.next()?.unwrap_or_default();
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.rest.len());
        Ok(self.rest.split_to(len))
    }

    fn skip(&mut self, mut len: u64) -> Result<(), SourceError> {
        while len > 0 {
            let skipped = self.take(len)?.len() as u64;
            if skipped == 0 {
                return Err("the archive ended too early".into());
            }
            len -= skipped;
        }
        Ok(())
    }

    fn expect_no_other_disk(&mut self) -> Result<(), SourceError> {
        let padding = std::mem::take(&mut self.padding);
        self.skip(padding)?;
        let name = self.name.clone();
        let mut archive = Archive::new(self);
        while let Some(entry) = archive.next_entry()? {
            if is_disk(&entry) {
                return Err(several(&name, &Place::of(&entry, 0).name).into());
            }
        }
        Ok(())
    }
}

impl ByteStream for Inside {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let before = std::mem::take(&mut self.before);
        self.skip(before)?;
        if self.left == 0 {
            self.expect_no_other_disk()?;
            return Ok(None);
        }
        let part = self.take(self.left)?;
        if part.is_empty() {
            return Err("the archive ended in the middle of its disk".into());
        }
        self.left -= part.len() as u64;
        Ok(Some(part))
    }
}

impl Read for Inside {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut part = self.take(out.len() as u64).map_err(io::Error::other)?;
        let len = part.len();
        part.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

/// All disks of an archive, whose headers alone are read.
fn all_disks(source: &dyn Source, length: u64) -> Result<Vec<Place>, Error> {
    let refused =
        |source_error: io::Error| crate::wire::explain(source_error, &source.facts().name);
    let mut disks = Vec::new();
    let (mut at, mut members) = (0, 0);
    'parts: while at < length {
        let part = read_exact(source, at, PART.min(length - at) as usize)?;
        let part_end = at + part.len() as u64;
        let mut archive = Archive::new(&part[..]);
        let mut entry_at = at;
        loop {
            let entry = match archive.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(disks),
                // Long names in the way: once more, from this entry on.
                Err(_) if entry_at > at => {
                    at = entry_at;
                    continue 'parts;
                }
                Err(error) => return Err(refused(error)),
            };
            members += 1;
            if members > MEMBERS_MAX {
                let what = format!("an OVA of more than {MEMBERS_MAX} members");
                return Err(Error::Unsupported { what });
            }
            let place = Place::of(&entry, at + archive.position());
            entry_at = place.next();
            if place.start + place.len > length {
                let source_error = formats::Error::Truncated { what: "OVA", at: length };
                return Err(refused(source_error.into()));
            }
            disks.extend(is_disk(&entry).then_some(place));
            if entry_at >= part_end {
                at = entry_at;
                continue 'parts;
            }
        }
    }
    Ok(disks)
}

/// The first disk whose header is in `head`.
fn first_disk(head: &[u8]) -> Option<Place> {
    let mut archive = Archive::new(head);
    while let Ok(Some(entry)) = archive.next_entry() {
        if is_disk(&entry) {
            return Some(Place::of(&entry, archive.position()));
        }
    }
    None
}

fn is_disk(entry: &Entry) -> bool {
    entry.kind == Kind::Regular && DISKS.iter().any(|end| has_end(entry, end))
}

fn has_end(entry: &Entry, end: &str) -> bool {
    let at = entry.path.len().saturating_sub(end.len());
    entry.path[at..].eq_ignore_ascii_case(end.as_bytes())
}

fn several(first: &str, other: &str) -> Error {
    let what = format!(
        "an OVA with several disks ({first}, {other}; unpack it and import them one by one)"
    );
    Error::Unsupported { what }
}
