//! Writes the content of one entry.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use clonestream::extents::{DATA_MAX, DataFrame, ExtentReader, Frame};
use parking_lot::Mutex;
use pipeline::{Disk, Pool, Progress, Sink};

use super::ReceiveError;
use crate::error::UploadError;

/// Queued frames per writer.
const FRAMES_EACH: usize = 2;
/// More threads do not keep a device busier.
const THREADS_MAX: usize = 8;

/// Decompresses into the beginning of `buffer`, and verifies the checksum.
fn decompress<'a>(data: &DataFrame, buffer: &'a mut [u8]) -> Result<&'a [u8], UploadError> {
    data.unpack(buffer).map_err(|error| UploadError::Extents(error.into()))?;
    Ok(&buffer[..data.len()])
}

/// Writes to a file that is all zeroes, on this thread. Returns the next frame of the stream. `buffer` has [`DATA_MAX`]
/// bytes.
pub fn write_to_file<R: Read>(
    reader: &mut ExtentReader<R>,
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<Option<Frame>, ReceiveError> {
    loop {
        match reader.next_frame().map_err(ReceiveError::Stream)? {
            Some(Frame::Data(data)) => {
                let bytes = decompress(&data, buffer).map_err(ReceiveError::Lost)?;
                file.write_all_at(bytes, data.at)
                    .map_err(|error| ReceiveError::Lost(write_failed(error)))?;
                progress.add_read(data.len() as u64);
            }
            Some(Frame::Zero { len, .. }) => progress.add_read(len),
            other => return Ok(other),
        }
    }
}

/// Writes to a disk on as many threads as there are cores. Returns the next frame of the stream.
pub fn write_to_disk<R: Read>(
    reader: &mut ExtentReader<R>,
    disk: &Disk,
    progress: &Progress,
) -> Result<Option<Frame>, ReceiveError> {
    let count = thread::available_parallelism().map_or(2, usize::from).min(THREADS_MAX);
    let (sender, receiver) = sync_channel(count * FRAMES_EACH);
    let receiver = Mutex::new(receiver);
    let has_failed = AtomicBool::new(false);
    let pool = Pool::new(DATA_MAX, count);
    thread::scope(|scope| {
        let write = || {
            let outcome = write_frames(&receiver, disk, &mut pool.take(), &has_failed);
            // Otherwise the sender would block without end.
            if outcome.is_err() {
                has_failed.store(true, Ordering::Relaxed);
                while receive_frame(&receiver).is_some() {}
            }
            outcome
        };
        let writers: Vec<_> = (0..count).map(|_| scope.spawn(write)).collect();
        let fed = distribute_frames(reader, &sender, disk, progress, &has_failed);
        drop(sender);
        for writer in writers {
            writer.join().unwrap_or(Err(UploadError::Panicked)).map_err(ReceiveError::Lost)?;
        }
        fed
    })
}

/// Passes data to the writers until another entry or the end comes, which it returns. Zeroes are written by this
/// thread.
fn distribute_frames<R: Read>(
    reader: &mut ExtentReader<R>,
    sender: &SyncSender<DataFrame>,
    disk: &Disk,
    progress: &Progress,
    has_failed: &AtomicBool,
) -> Result<Option<Frame>, ReceiveError> {
    loop {
        if has_failed.load(Ordering::Relaxed) {
            return Ok(None); // the writer returns the error
        }
        match reader.next_frame().map_err(ReceiveError::Stream)? {
            Some(Frame::Data(data)) => {
                progress.add_read(data.len() as u64);
                // The receiver outlives this function.
                let _ = sender.send(data);
            }
            Some(Frame::Zero { at, len }) => {
                progress.add_read(len);
                if !disk.starts_zeroed() {
                    disk.zero_at(at, len)
                        .map_err(|error| ReceiveError::Lost(write_failed(error)))?;
                }
            }
            other => return Ok(other),
        }
    }
}

fn write_frames(
    receiver: &Mutex<Receiver<DataFrame>>,
    disk: &Disk,
    buffer: &mut [u8],
    has_failed: &AtomicBool,
) -> Result<(), UploadError> {
    while let Some(data) = receive_frame(receiver) {
        if has_failed.load(Ordering::Relaxed) {
            continue;
        }
        disk.write_at(data.at, decompress(&data, buffer)?).map_err(write_failed)?;
    }
    Ok(())
}

fn receive_frame(receiver: &Mutex<Receiver<DataFrame>>) -> Option<DataFrame> {
    receiver.lock().recv().ok()
}

fn write_failed(error: io::Error) -> UploadError {
    UploadError::Target(error)
}
