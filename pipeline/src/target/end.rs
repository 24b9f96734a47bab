//! Ends a disk: makes it visible once it is durable, or removes it.

use std::sync::atomic::Ordering;

use super::io_error::{Doing, refused};
use super::{Disk, TargetKind, file};
use crate::error::Error;
use crate::sink::Sink;

impl Disk {
    /// Shrinks the disk to `size`, for a stream whose length is known only at its end. With `preallocate`, what remains
    /// is allocated now.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn end_at(&mut self, size: u64, preallocate: bool) -> Result<(), Error> {
        if size >= self.size {
            return Ok(());
        }
        if let TargetKind::File(_) = &self.kind {
            self.disk_file.file().set_len(size).doing("set the length of", &self.path)?;
            if preallocate && !file::preallocate(self.disk_file.file(), size, &self.path)? {
                return Err(refused(
                    "preallocate",
                    &self.path,
                    "the file system cannot do that for a disk whose size is known only at its end; give --size",
                ));
            }
        } else if !self.starts_zeroed {
            self.zero_at(size, self.size - size).doing("write zeroes to", &self.path)?;
        }
        self.size = size;
        Ok(())
    }

    /// Makes everything durable and the disk visible: a file gets its name, a device its first bytes. The rest of a
    /// larger device reads as zeroes.
    ///
    /// If [`starts_zeroed`](Sink::starts_zeroed) is false, everything from 0 to the size has to have been written
    /// or zeroed before.
    ///
    /// # Errors
    /// On I/O errors, of closing too, and when any earlier call has failed. The disk is not visible then, except that a
    /// file has its name if only the sync of its directory failed. A new file that could not be made durable is removed:
    /// which of its bytes the storage has lost is unknown.
    pub fn finish(self) -> Result<(), Error> {
        let intact = self.intact().doing("finish", &self.path);
        let parked_end = self.parked_end.load(Ordering::Relaxed);
        match self.kind {
            TargetKind::File(partial) => {
                let close = || {
                    let file = self.disk_file.file();
                    // Parked bytes that lie behind the disk end here, durably with the `close` before the name is given.
                    if parked_end > self.size {
                        file.set_len(self.size).doing("set the length of", &self.path)?;
                    }
                    self.disk_file.close().doing("make durable", &self.path)
                };
                let durable = intact.and_then(|()| close());
                if durable.is_err() && !self.was_there {
                    let _ = partial.remove(); // the first error is the cause
                    return durable;
                }
                durable.and_then(|()| partial.rename())
            }
            TargetKind::Device(device) => {
                intact?;
                device
                    .finish(&self.disk_file, self.zeroing, parked_end)
                    .doing("make durable", &self.path)?;
                self.disk_file.close().doing("make durable", &self.path)
            }
            TargetKind::Patched => {
                intact?;
                self.disk_file.close().doing("make durable", &self.path)
            }
        }
    }

    /// Removes what was written: nothing is left that could be resumed or looks like a disk. A disk that
    /// [was there](Self::was_there) before is kept for the stage to be repeated; a file without its name.
    ///
    /// # Errors
    /// On I/O errors. A device then still has no first MiB of a disk, unless it had when it was opened.
    pub fn abandon(self) -> Result<(), Error> {
        match self.kind {
            TargetKind::File(_) if self.was_there => Ok(()),
            TargetKind::Patched => Ok(()),
            TargetKind::File(partial) => partial.remove(),
            TargetKind::Device(device) => device.abandon(&self.disk_file).doing("wipe", &self.path),
        }
    }
}
