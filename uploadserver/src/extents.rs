//! A clone sent by our own source: what is data, and nothing else, gone on with where a connection broke.
//!
//! Offered where the target is a device. What is durable of a clone that broke off is remembered for as long as the process
//! lives; who comes with the same source gets to hear where to go on.

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use clonestream::extents::{DATA_MAX, Data, Entry, EntryKind, Frame, Preamble, Reader, Unpacker};
use clonestream::offer::{Identity, Offer, Position, VERSION};
use pipeline::{ByteStream, Disk, DiskOptions, Pool, Progress, Sink, Target};

use crate::clone::{DISK_NAME, Reading};
use crate::error::UploadError;

/// Frames between the connection and those who write, for each of them.
const FRAMES_EACH: usize = 2;
/// More threads than this keep no device busier.
const THREADS_MAX: usize = 8;

/// What has come of a clone whose connection broke.
#[derive(Default)]
pub struct Half(Mutex<Option<Begun>>);

struct Begun {
    identity: Identity,
    /// All before it is durable.
    position: Position,
    /// The disk, and which of the entries it is.
    disk: Option<(u64, Disk)>,
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

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a stream goes on with: what is here, or nothing, where it begins at the beginning.
    fn take_for(&self, preamble: &Preamble) -> Result<Begun, UploadError> {
        let Preamble { identity, begin } = *preamble;
        let begun = self.lock().take();
        let begun = begun.filter(|known| known.identity == identity && known.position == begin);
        match begun {
            Some(begun) => Ok(begun),
            None if begin == Position::default() => {
                Ok(Begun { identity, position: begin, disk: None })
            }
            None => Err(broken("the stream goes on with what is not here")),
        }
    }
}

/// Why a stream did not become a disk.
enum Failure {
    /// It broke off or is damaged; what came before is good.
    Stream(io::Error),
    /// The target, or what is in a frame: what is there is not to be gone on with.
    Lost(UploadError),
}

fn broken(because: &'static str) -> UploadError {
    UploadError::Extents(io::Error::new(io::ErrorKind::InvalidData, because))
}

/// Writes a stream to the target. Returns once all of it is durable.
pub fn receive(
    half: &Half,
    target: &Target,
    body: impl ByteStream + 'static,
    progress: &Progress,
) -> Result<(), UploadError> {
    let mut reader = Reader::begin(Reading::of(body)).map_err(UploadError::Extents)?;
    let mut begun = half.take_for(reader.preamble())?;
    match take(&mut reader, &mut begun, target, progress) {
        Ok(()) => {
            let (_, disk) = begun.disk.ok_or(UploadError::NoDisk)?;
            disk.finish().map_err(UploadError::Import)
        }
        Err(Failure::Lost(error)) => Err(error),
        Err(Failure::Stream(error)) => {
            begun.position = reader.position();
            let is_durable = begun.disk.as_ref().is_none_or(|(_, disk)| disk.sync().is_ok());
            if is_durable {
                *half.lock() = Some(begun);
            }
            Err(UploadError::Extents(error))
        }
    }
}

fn take<R: Read>(
    reader: &mut Reader<R>,
    begun: &mut Begun,
    target: &Target,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut next = reader.next_frame().map_err(Failure::Stream)?;
    while let Some(frame) = next {
        next = match frame {
            Frame::Entry { index, entry } if is_wanted(begun, index, &entry) => {
                let disk = match begun.disk.take() {
                    Some((_, disk)) => disk,
                    None => {
                        let options = DiskOptions {
                            size: entry.size,
                            preallocate: target.preallocate,
                            resume: false,
                        };
                        let opened = Disk::open(&target.path, &options);
                        opened.map_err(|error| Failure::Lost(UploadError::Import(error)))?
                    }
                };
                let (_, disk) = begun.disk.insert((index, disk));
                progress.set_read_total(entry.size);
                progress.add_read(reader.position().at);
                content(reader, disk, progress)?
            }
            // What lies beside a disk has no place on a device.
            Frame::Entry { .. } | Frame::Data(_) | Frame::Zero { .. } => {
                reader.next_frame().map_err(Failure::Stream)?
            }
        };
    }
    Ok(())
}

/// Whether an entry is the disk: the first one, if there are several.
fn is_wanted(begun: &Begun, index: u64, entry: &Entry) -> bool {
    let is_disk = match entry.kind {
        EntryKind::Disk => true,
        EntryKind::Regular => memchr::memmem::find(&entry.path, DISK_NAME).is_some(),
        EntryKind::Directory | EntryKind::Symlink(_) | EntryKind::HardLink(_) => false,
    };
    is_disk && begun.disk.as_ref().is_none_or(|(known, _)| *known == index)
}

/// Writes the content of one entry, on as many threads as there are cores. Returns what follows it.
fn content<R: Read>(
    reader: &mut Reader<R>,
    disk: &Disk,
    progress: &Progress,
) -> Result<Option<Frame>, Failure> {
    let count = thread::available_parallelism().map_or(2, usize::from).min(THREADS_MAX);
    let (sender, receiver) = sync_channel(count * FRAMES_EACH);
    let receiver = Mutex::new(receiver);
    let has_failed = AtomicBool::new(false);
    let pool = Pool::new(DATA_MAX, count);
    thread::scope(|scope| {
        let write = || {
            let outcome = write_all(&receiver, disk, &mut pool.take(), &has_failed);
            // Whoever sends would wait for ever.
            if outcome.is_err() {
                has_failed.store(true, Ordering::Relaxed);
                while next_of(&receiver).is_some() {}
            }
            outcome
        };
        let writers: Vec<_> = (0..count).map(|_| scope.spawn(write)).collect();
        let fed = feed(reader, &sender, disk, progress, &has_failed);
        drop(sender);
        for writer in writers {
            writer.join().unwrap_or(Err(UploadError::Lost)).map_err(Failure::Lost)?;
        }
        fed
    })
}

/// Hands data on until something else comes, which it returns. Zeroes it makes itself.
fn feed<R: Read>(
    reader: &mut Reader<R>,
    sender: &SyncSender<Data>,
    disk: &Disk,
    progress: &Progress,
    has_failed: &AtomicBool,
) -> Result<Option<Frame>, Failure> {
    loop {
        if has_failed.load(Ordering::Relaxed) {
            return Ok(None); // the writer says why
        }
        match reader.next_frame().map_err(Failure::Stream)? {
            Some(Frame::Data(data)) => {
                progress.add_read(data.len() as u64);
                // The receiver lives as long as this does.
                let _ = sender.send(data);
            }
            Some(Frame::Zero { at, len }) => {
                progress.add_read(len);
                if !disk.starts_zeroed() {
                    disk.zero_at(at, len).map_err(|error| Failure::Lost(unwritten(error)))?;
                }
            }
            other => return Ok(other),
        }
    }
}

fn write_all(
    receiver: &Mutex<Receiver<Data>>,
    disk: &Disk,
    buffer: &mut [u8],
    has_failed: &AtomicBool,
) -> Result<(), UploadError> {
    let mut unpacker = Unpacker::new().map_err(UploadError::Extents)?;
    while let Some(data) = next_of(receiver) {
        if has_failed.load(Ordering::Relaxed) {
            continue;
        }
        unpacker.unpack(&data, buffer).map_err(|error| UploadError::Extents(error.into()))?;
        disk.write_at(data.at, &buffer[..data.len()]).map_err(unwritten)?;
    }
    Ok(())
}

fn next_of(receiver: &Mutex<Receiver<Data>>) -> Option<Data> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn unwritten(error: io::Error) -> UploadError {
    UploadError::Target(error)
}
