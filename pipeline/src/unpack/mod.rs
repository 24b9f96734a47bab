//! An archive of files instead of a disk: a tar, perhaps compressed, unpacked into a directory while it is read.

mod paths;
mod staging;
mod tree;

use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use contract::{Checksum, Hasher};
use formats::decompress::{Limits, readers};
use formats::sniff::{Compression, probe_head};
use formats::tar::Archive;
use serde::Serialize;

use crate::error::Error;
use crate::probe::{HEAD_LEN, HEAD_LEN_MAX, needs_more};
use crate::progress::{Progress, ProgressPhase};
use crate::source::Source;
use crate::wire::{Wire, explain};
pub use staging::Staging;
use tree::{EntryError, Tree};

/// How to unpack.
#[derive(Clone, Debug, Default)]
pub struct UnpackOptions {
    /// Checksum of the archive as it is sent.
    pub checksum: Option<Checksum>,
    /// Hash it with SHA-256 and report that, although nothing is compared.
    pub digest: bool,
    /// Refuse a directory that holds anything but `lost+found`. Otherwise existing files are replaced, as after an earlier
    /// attempt.
    pub only_empty: bool,
    /// Allocate every byte of every file. Otherwise runs of zeroes become holes.
    pub preallocate: bool,
}

/// What was unpacked. Serialises to the object that `--json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unpacked {
    /// Regular files, hard links among them.
    pub files: u64,
    /// Directories.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes in files.
    pub bytes_written: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Compressions undone, outermost first.
    pub compression: Vec<String>,
    /// Of the archive as it was sent, if requested.
    pub digest: Option<String>,
    /// Wall time.
    pub seconds: f64,
}

/// Unpacks the archive that `source` holds into `directory`, which exists, and returns once all of it is durable. Modes are
/// kept, owners are not. `lost+found` is left alone. Of a source that [is no other than it is](Source::is_disk), nothing is
/// decompressed.
///
/// # Errors
/// When the archive cannot be read, is invalid, has another checksum, or holds what is not unpacked: devices, and
/// names or links that lead out of the directory. The directory is empty then.
pub fn unpack(
    source: &dyn Source,
    directory: &Path,
    options: &UnpackOptions,
    progress: &Arc<Progress>,
) -> Result<Unpacked, Error> {
    let began = Instant::now();
    let failed = |what, source| Error::Target { what, path: directory.to_owned(), source };
    let mut tree =
        Tree::open(directory, options.preallocate).map_err(|error| failed("open", error))?;
    if options.only_empty && !tree.is_empty().map_err(|error| failed("list", error))? {
        let source = std::io::ErrorKind::DirectoryNotEmpty.into();
        return Err(failed("unpack into", source));
    }
    if let Some(length) = source.facts().length {
        progress.set_read_total(length);
    }
    progress.enter(ProgressPhase::Transferring);
    let result = fill(&mut tree, source, options, progress).and_then(|unpacked| {
        progress.enter(ProgressPhase::Finishing);
        tree.sync().map_err(|error| failed("make durable", error))?;
        Ok(unpacked)
    });
    match result {
        Ok(unpacked) => {
            progress.enter(ProgressPhase::Done);
            let bytes_read = progress.snapshot().read;
            Ok(Unpacked { bytes_read, seconds: began.elapsed().as_secs_f64(), ..unpacked })
        }
        Err(error) => {
            if let Err(left) = tree.clear() {
                tracing::warn!(
                    "cannot remove what was unpacked into {}: {left}",
                    directory.display()
                );
            }
            Err(error)
        }
    }
}

/// Why the compressions of an archive could not be detected.
enum Unseen {
    Unread(io::Error),
    Refused(formats::Error),
}

/// Reads into `head` until each compression has yielded content, and returns the compressions. A block of bzip2 or lz4 has
/// to be complete first.
fn compressions_of(wire: &mut Wire, head: &mut Vec<u8>) -> Result<Vec<Compression>, Unseen> {
    let mut len = HEAD_LEN;
    loop {
        let more = (len - head.len()) as u64;
        wire.by_ref().take(more).read_to_end(head).map_err(Unseen::Unread)?;
        let whole = head.len() < len;
        match probe_head(head, whole) {
            seen if !whole && len < HEAD_LEN_MAX && needs_more(&seen) => {
                len = (2 * len).min(HEAD_LEN_MAX)
            }
            Ok(seen) => return Ok(seen.compressions),
            Err(error) => return Err(Unseen::Refused(error)),
        }
    }
}

fn fill(
    tree: &mut Tree,
    source: &dyn Source,
    options: &UnpackOptions,
    progress: &Arc<Progress>,
) -> Result<Unpacked, Error> {
    let name = &source.facts().name;
    let hasher = match &options.checksum {
        Some(checksum) => Some(checksum.hasher()),
        None => options.digest.then(Hasher::sha256),
    };
    let explained = |error| match explain(error, name) {
        Error::Decode { source, .. } => Error::Untar(source.into()),
        other => other,
    };
    let mut wire = Wire::new(source.open(0, None), progress, hasher)?;
    let mut head = Vec::new();
    let compressions = if source.is_disk() {
        // whatever it looks like
        vec![]
    } else {
        compressions_of(&mut wire, &mut head).map_err(|error| match error {
            Unseen::Unread(error) => explained(error),
            Unseen::Refused(error) => Error::Untar(error.into()),
        })?
    };
    let mut unpacked = Unpacked {
        compression: compressions.iter().map(ToString::to_string).collect(),
        ..Unpacked::default()
    };
    {
        let stream = Box::new(Cursor::new(head).chain(&mut wire));
        let mut tar = Archive::with_holes(readers(&compressions, stream, Limits::default()));
        while let Some(entry) = tar.next_entry().map_err(explained)? {
            tree.place(&entry, &mut tar, &mut unpacked, progress).map_err(|error| {
                let path = String::from_utf8_lossy(&entry.path).escape_debug().to_string();
                match error {
                    EntryError::Refused(because) => {
                        Error::Untar(format!("{path} {because}").into())
                    }
                    EntryError::Read(error) => explained(error),
                    EntryError::Write(source) => {
                        let path = path.chars().take(256).collect::<String>().into();
                        Error::Target { what: "unpack", path, source }
                    }
                }
            })?;
        }
        tree.finish().map_err(|error| Error::Untar(error.into()))?;
    }
    let digest = wire.finish().map_err(explained)?;
    if let (Some(expected), Some(calculated)) = (&options.checksum, &digest)
        && expected != calculated
    {
        let (expected, calculated) = (expected.to_string(), calculated.to_string());
        return Err(Error::Checksum { expected, calculated });
    }
    unpacked.digest = digest.map(|digest| digest.to_string());
    Ok(unpacked)
}
