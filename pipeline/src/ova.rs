//! OVA: a tar archive that begins with the description of a virtual machine. The disk inside is a source of its own.
//!
//! If the source of the archive serves ranges, the part with the disk is read like a file. If not, everything before the
//! disk is skipped, and the members after it are examined at the end: a second disk then fails the import.

use std::io::{self, Read};
use std::time::Instant;

use bytes::{Buf, Bytes};
use formats::tar::{Archive, Entry, Kind, is_tar};
use parking_lot::Mutex;

use crate::error::Error;
use crate::finish::check_digest;
use crate::import::Import;
use crate::options::{Options, Report, SourceFormat};
use crate::probe::probe;
use crate::routes::read_exact;
use crate::source::{ByteStream, Source, SourceError, SourceFacts};
use crate::wire::Wire;

/// Bytes read at a time to find headers: usually the description and the header of the disk.
const PART: u64 = 64 << 10;
/// Bounds the requests for an archive that is no OVA.
const MEMBERS_MAX: usize = 4096;
const BLOCK: u64 = 512;
/// Disks are recognized by their names, since other members (CD images, firmware variables) look like raw disks.
const DISKS: [&str; 8] = [".vmdk", ".vhd", ".vhdx", ".vdi", ".qcow2", ".img", ".raw", ".vmdk.gz"];

/// Whether `head` begins an archive whose first member describes a virtual machine.
pub fn is_ova(head: &[u8]) -> bool {
    is_tar(head)
        && matches!(Archive::new(head).next_entry(), Ok(Some(first)) if has_end(&first, ".ovf"))
}

/// Where a disk is in the archive.
struct DiskLocation {
    name: String,
    start: u64,
    len: u64,
}

impl DiskLocation {
    fn from_entry(entry: &Entry, start: u64) -> Self {
        let name = String::from_utf8_lossy(&entry.path).escape_debug().to_string();
        Self { name, start, len: entry.size }
    }

    fn next_header(&self) -> u64 {
        (self.start + self.len).next_multiple_of(BLOCK) // sizes are below 2^62
    }
}

/// The disk in an OVA, as a source.
pub struct Member<'a> {
    outer: &'a dyn Source,
    facts: SourceFacts,
    location: DiskLocation,
    /// The archive from its start, as the probe left it.
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
        let location = match (disks.pop(), disks.first()) {
            (Some(last), Some(first)) => return Err(several_disks(&first.name, &last.name)),
            (Some(only), None) => only,
            (None, _) => {
                let what = format!("an OVA without a disk of a known kind ({})", DISKS.join(", "));
                return Err(Error::Unsupported { what });
            }
        };
        let facts = outer.facts();
        let facts = SourceFacts {
            name: format!("{} in {}", location.name, facts.name),
            length: Some(location.len),
            validator: facts.validator.as_ref().map(|whole| format!("{whole} {}", location.start)),
            ..facts.clone()
        };
        Ok(Self { outer, facts, location, stream: Mutex::new(stream) })
    }
}

impl Source for Member<'_> {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let DiskLocation { start, len, .. } = self.location;
        if self.outer.facts().ranges {
            return self.outer.open(start + at, Some(start + end.unwrap_or(len).min(len)));
        }
        let first = self.stream.lock().take();
        let stream = first.unwrap_or_else(|| self.outer.open(0, None));
        let padding = self.location.next_header() - start - len;
        let name = self.location.name.clone();
        Box::new(MemberStream {
            stream,
            rest: Bytes::new(),
            before: start,
            left: len,
            padding,
            name,
        })
    }

    fn can_reopen(&self) -> bool {
        self.outer.can_reopen()
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.outer.limit_receive_memory(bytes);
    }
}

impl Import<'_> {
    /// Imports the disk `member` of the archive that is the source.
    pub fn import_member(self, member: &Member<'_>) -> Result<Report, Error> {
        let started = Instant::now();
        let mut digest = None;
        if let Some(hasher) = self.options.hasher() {
            // The checksum is of the whole archive, most of which need not be read otherwise.
            if !self.source.facts().ranges {
                let what =
                    "the checksum of an OVA that cannot be read twice (save it in a file first)";
                return Err(Error::Unsupported { what: what.into() });
            }
            let wire = Wire::new(self.source.open(0, None), self.progress, Some(hasher))?;
            let explain = |error| crate::wire::explain(error, &self.source.facts().name);
            let calculated = wire.finish().map_err(explain)?;
            check_digest(self.options, calculated.as_ref())?;
            digest = calculated.map(|digest| digest.to_string());
        }
        let image = probe(member, None, SourceFormat::Detect)?;
        if image.ova.is_some() {
            return Err(Error::Unsupported { what: "an OVA in an OVA".to_owned() });
        }
        // The digest was of the archive.
        let options =
            Options { checksum: None, checksum_later: None, digest: false, ..self.options.clone() };
        let import = Import { source: member, options: &options, ..self };
        let report = import.import_image(image, started)?;
        Ok(Report { digest, format: format!("{} in ova", report.format), ..report })
    }
}

/// The part of the archive that is the disk.
struct MemberStream {
    stream: Box<dyn ByteStream>,
    rest: Bytes,
    /// Bytes to skip first.
    before: u64,
    /// Bytes of the disk still to come.
    left: u64,
    padding: u64,
    name: String,
}

impl MemberStream {
    /// Up to `len` of the archive's next bytes; none at its end.
    fn next_bytes(&mut self, len: u64) -> Result<Bytes, SourceError> {
        if self.rest.is_empty() {
            self.rest = self.stream.next()?.unwrap_or_default();
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.rest.len());
        Ok(self.rest.split_to(len))
    }

    fn skip(&mut self, mut len: u64) -> Result<(), SourceError> {
        while len > 0 {
            let skipped = self.next_bytes(len)?.len() as u64;
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
                return Err(several_disks(&name, &DiskLocation::from_entry(&entry, 0).name).into());
            }
        }
        Ok(())
    }
}

impl ByteStream for MemberStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let before = std::mem::take(&mut self.before);
        self.skip(before)?;
        if self.left == 0 {
            self.expect_no_other_disk()?;
            return Ok(None);
        }
        let part = self.next_bytes(self.left)?;
        if part.is_empty() {
            return Err("the archive ended in the middle of its disk".into());
        }
        self.left -= part.len() as u64;
        Ok(Some(part))
    }
}

impl Read for MemberStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut part = self.next_bytes(out.len() as u64).map_err(io::Error::other)?;
        let len = part.len();
        part.copy_to_slice(&mut out[..len]);
        Ok(len)
    }
}

/// All disks of an archive. Only headers are read.
fn all_disks(source: &dyn Source, length: u64) -> Result<Vec<DiskLocation>, Error> {
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
                // Long names fill the part: continue with this entry at the start of the next part.
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
            let location = DiskLocation::from_entry(&entry, at + archive.position());
            entry_at = location.next_header();
            if location.start + location.len > length {
                let source_error = formats::Error::Truncated { what: "OVA", at: length };
                return Err(refused(source_error.into()));
            }
            disks.extend(is_disk(&entry).then_some(location));
            if entry_at >= part_end {
                at = entry_at;
                continue 'parts;
            }
        }
    }
    Ok(disks)
}

/// The first disk whose header is in `head`.
fn first_disk(head: &[u8]) -> Option<DiskLocation> {
    let mut archive = Archive::new(head);
    while let Ok(Some(entry)) = archive.next_entry() {
        if is_disk(&entry) {
            return Some(DiskLocation::from_entry(&entry, archive.position()));
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

fn several_disks(first: &str, other: &str) -> Error {
    let what = format!(
        "an OVA with several disks ({first}, {other}; unpack it and import them one by one)"
    );
    Error::Unsupported { what }
}
