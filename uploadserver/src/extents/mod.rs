//! Receives the extent stream of our own cloner.
//!
//! The durable part of an interrupted clone is remembered while the process lives; the response to the same source states where to
//! resume.

mod destination;
mod write_content;

use std::fmt;
use std::io::{self, Read};
use std::path::Path;

use clonestream::extents::{DATA_MAX, ExtentReader, Frame, Preamble};
use clonestream::offer::{SourceIdentity, StreamOffer, StreamPosition, VERSION};
use parking_lot::{Mutex, MutexGuard};
use pipeline::{ByteStream, Progress, Target};

use self::destination::{CloneDestination, EntryTarget};
use self::write_content::{write_to_disk, write_to_file};
use crate::clone_body::StreamReader;
use crate::error::UploadError;

/// The received part of an interrupted clone, if there is one.
#[derive(Default)]
pub struct InterruptedClone(Mutex<Option<PartialClone>>);

struct PartialClone {
    identity: SourceIdentity,
    /// Everything before it is durable.
    position: StreamPosition,
    destination: CloneDestination,
}

impl fmt::Debug for InterruptedClone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "InterruptedClone({})", self.offer())
    }
}

impl InterruptedClone {
    /// The position that the source should start at.
    pub fn offer(&self) -> StreamOffer {
        let durable = self.lock().as_ref().map(|partial| (partial.identity, partial.position));
        StreamOffer { version: VERSION, durable }
    }

    /// Another transfer starts: the clone cannot be resumed any more.
    pub fn discard(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<PartialClone>> {
        self.0.lock()
    }

    /// The interrupted clone that the stream resumes, or a new destination for a stream from the start.
    fn resume_or_open(
        &self,
        preamble: &Preamble,
        volume: &CloneVolume<'_>,
    ) -> Result<PartialClone, UploadError> {
        let Preamble { identity, begin } = *preamble;
        let partial = self.lock().take();
        let partial = partial.filter(|known| known.identity == identity && known.position == begin);
        match partial {
            Some(partial) => Ok(partial),
            None if begin == StreamPosition::default() => {
                let destination = CloneDestination::open(volume.target, volume.directory)?;
                Ok(PartialClone { identity, position: begin, destination })
            }
            None => Err(malformed_stream(
                "the stream starts at a position that this server does not have",
            )),
        }
    }
}

pub struct CloneVolume<'a> {
    pub target: &'a Target,
    /// The directory of the disk's file; `None` for a device.
    pub directory: Option<&'a Path>,
}

enum ReceiveError {
    /// The stream broke off or is damaged. What was received before is good, and can be resumed.
    Stream(io::Error),
    /// The target, or the content of a frame. Nothing can be resumed.
    Lost(UploadError),
}

fn malformed_stream(because: &'static str) -> UploadError {
    UploadError::Extents(io::Error::new(io::ErrorKind::InvalidData, because))
}

/// Returns once all of it is durable.
pub fn receive_clone(
    interrupted: &InterruptedClone,
    volume: &CloneVolume<'_>,
    body: impl ByteStream + 'static,
    progress: &Progress,
) -> Result<(), UploadError> {
    let mut reader = ExtentReader::open(StreamReader::new(body)).map_err(UploadError::Extents)?;
    let mut partial = interrupted.resume_or_open(reader.preamble(), volume)?;
    match receive_entries(&mut reader, &mut partial.destination, progress) {
        Ok(()) => partial.destination.finish(),
        Err(ReceiveError::Lost(error)) => Err(error),
        Err(ReceiveError::Stream(error)) => {
            partial.position = reader.position();
            match partial.destination.sync() {
                Ok(()) => *interrupted.lock() = Some(partial),
                Err(lost) => {
                    tracing::warn!(error = %runtime::chain(&lost), "cannot sync the received part, so the clone starts again")
                }
            }
            Err(UploadError::Extents(error))
        }
    }
}

fn receive_entries<R: Read>(
    reader: &mut ExtentReader<R>,
    destination: &mut CloneDestination,
    progress: &Progress,
) -> Result<(), ReceiveError> {
    let mut buffer = vec![0; DATA_MAX];
    let mut total = 0_u64;
    let mut next = reader.next_frame().map_err(ReceiveError::Stream)?;
    while let Some(frame) = next {
        let content = match &frame {
            Frame::Entry { index, entry } => {
                let content = destination.start_entry(*index, entry).map_err(ReceiveError::Lost)?;
                if content.is_some() {
                    total = total.saturating_add(entry.size);
                    progress.set_read_total(total);
                    progress.add_read(reader.position().at);
                }
                content
            }
            // Of an entry that is not written.
            Frame::Data(_) | Frame::Zero { .. } => None,
        };
        next = match content {
            Some(EntryTarget::Disk(disk)) => write_to_disk(reader, disk, progress)?,
            Some(EntryTarget::File(file)) => write_to_file(reader, file, &mut buffer, progress)?,
            None => reader.next_frame().map_err(ReceiveError::Stream)?,
        };
    }
    Ok(())
}
