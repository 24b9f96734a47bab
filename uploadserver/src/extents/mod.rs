//! A clone sent by our own source: what is data, and nothing else, gone on with where a connection broke.
//!
//! What is durable of a clone that broke off is remembered for as long as the process lives; who comes with the same source
//! gets to hear where to go on.

mod content;
mod place;

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use clonestream::extents::{DATA_MAX, Frame, Preamble, Reader};
use clonestream::offer::{Identity, Offer, Position, VERSION};
use pipeline::{ByteStream, Progress, Target};

use self::content::{to_disk, to_file};
use self::place::{Content, Place};
use crate::clone::Reading;
use crate::error::UploadError;

/// What has come of a clone whose connection broke.
#[derive(Default)]
pub struct Half(Mutex<Option<Begun>>);

struct Begun {
    identity: Identity,
    /// All before it is durable.
    position: Position,
    place: Place,
}

impl fmt::Debug for Half {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Half({})", self.offer())
    }
}

impl Half {
    /// What a source is told before it sends.
    pub fn offer(&self) -> Offer {
        let durable = self.lock().as_ref().map(|begun| (begun.identity, begun.position));
        Offer { version: VERSION, durable }
    }

    /// Nobody goes on with it: the volume is filled in another way.
    pub fn forget(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a stream goes on with: what is here, or nothing, where it begins at the beginning.
    fn take_for(&self, preamble: &Preamble, volume: &Volume<'_>) -> Result<Begun, UploadError> {
        let Preamble { identity, begin } = *preamble;
        let begun = self.lock().take();
        let begun = begun.filter(|known| known.identity == identity && known.position == begin);
        match begun {
            Some(begun) => Ok(begun),
            None if begin == Position::default() => {
                let place = Place::open(volume.target, volume.folder)?;
                Ok(Begun { identity, position: begin, place })
            }
            None => Err(broken("the stream goes on with what is not here")),
        }
    }
}

/// What is to be filled.
pub struct Volume<'a> {
    /// A device, or the file of a disk.
    pub target: &'a Target,
    /// Where that file lies.
    pub folder: Option<&'a Path>,
}

/// Why a stream did not become a volume.
enum Failure {
    /// It broke off or is damaged; what came before is good.
    Stream(io::Error),
    /// The target, or what is in a frame: what is there is not to be gone on with.
    Lost(UploadError),
}

fn broken(because: &'static str) -> UploadError {
    UploadError::Extents(io::Error::new(io::ErrorKind::InvalidData, because))
}

/// Writes a stream to the volume. Returns once all of it is durable.
pub fn receive(
    half: &Half,
    volume: &Volume<'_>,
    body: impl ByteStream + 'static,
    progress: &Progress,
) -> Result<(), UploadError> {
    let mut reader = Reader::begin(Reading::of(body)).map_err(UploadError::Extents)?;
    let mut begun = half.take_for(reader.preamble(), volume)?;
    match take(&mut reader, &mut begun.place, progress) {
        Ok(()) => begun.place.finish(),
        Err(Failure::Lost(error)) => Err(error),
        Err(Failure::Stream(error)) => {
            begun.position = reader.position();
            match begun.place.sync() {
                Ok(()) => *half.lock() = Some(begun),
                Err(lost) => tracing::warn!("what has come is lost: {}", runtime::chain(&lost)),
            }
            Err(UploadError::Extents(error))
        }
    }
}

fn take<R: Read>(
    reader: &mut Reader<R>,
    place: &mut Place,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut buffer = vec![0; DATA_MAX];
    let mut total = 0_u64;
    let mut next = reader.next_frame().map_err(Failure::Stream)?;
    while let Some(frame) = next {
        let content = match &frame {
            Frame::Entry { index, entry } => {
                let content = place.begin(*index, entry).map_err(Failure::Lost)?;
                if content.is_some() {
                    total = total.saturating_add(entry.size);
                    progress.set_read_total(total);
                    progress.add_read(reader.position().at);
                }
                content
            }
            // Of an entry that is not wanted.
            Frame::Data(_) | Frame::Zero { .. } => None,
        };
        next = match content {
            Some(Content::Disk(disk)) => to_disk(reader, disk, progress)?,
            Some(Content::File(file)) => to_file(reader, file, &mut buffer, progress)?,
            None => reader.next_frame().map_err(Failure::Stream)?,
        };
    }
    Ok(())
}
