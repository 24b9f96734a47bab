//! The content of one entry, from the stream to where it belongs.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clonestream::extents::{DATA_MAX, Data, Frame, Reader};
use pipeline::{Disk, Pool, Progress, Sink};

use super::Failure;
use crate::error::UploadError;

/// Frames between the connection and those who write, for each of them.
const FRAMES_EACH: usize = 2;
/// More threads than this keep no device busier.
const THREADS_MAX: usize = 8;

/// Unpacks into the beginning of `buffer`, and checks.
fn unpack<'a>(data: &Data, buffer: &'a mut [u8]) -> Result<&'a [u8], UploadError> {
    data.unpack(buffer).map_err(|error| UploadError::Extents(error.into()))?;
    Ok(&buffer[..data.len()])
}

/// Writes the content of one entry to a file that is all zeroes, as it comes. Returns what follows it. Each frame is unpacked
/// into `buffer`, which has room for [`DATA_MAX`] bytes.
pub fn to_file<R: Read>(
    reader: &mut Reader<R>,
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<Option<Frame>, Failure> {
    loop {
        match reader.next_frame().map_err(Failure::Stream)? {
            Some(Frame::Data(data)) => {
                let bytes = unpack(&data, buffer).map_err(Failure::Lost)?;
                file.write_all_at(bytes, data.at)
                    .map_err(|error| Failure::Lost(unwritten(error)))?;
                progress.add_read(data.len() as u64);
            }
            Some(Frame::Zero { len, .. }) => progress.add_read(len),
            other => return Ok(other),
        }
    }
}

/// Writes the content of one entry to a disk, on as many threads as there are cores. Returns what follows it.
pub fn to_disk<R: Read>(
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
    while let Some(data) = next_of(receiver) {
        if has_failed.load(Ordering::Relaxed) {
            continue;
        }
        disk.write_at(data.at, unpack(&data, buffer)?).map_err(unwritten)?;
    }
    Ok(())
}

fn next_of(receiver: &Mutex<Receiver<Data>>) -> Option<Data> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn unwritten(error: io::Error) -> UploadError {
    UploadError::Target(error)
}
