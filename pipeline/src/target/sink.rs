//! The calls that write and read a disk: inside its bounds, and none that fails is forgotten.

use std::io;
use std::sync::atomic::Ordering;

use super::dual_path_file::Zeroing;
use super::io_error::plain;
use super::{Disk, TargetKind, file};
use crate::sink::{ParkingSpace, Sink, write_each_at};

impl Sink for Disk {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.record_failure(|| {
            self.contains(at, bytes.len() as u64)?;
            let held = self.device().map_or(0, |device| device.hold(at, bytes));
            self.disk_file.write(at + held as u64, &bytes[held..])
        })
    }

    fn write_pieces_at(&self, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        if self.device().is_some_and(|device| at < device.held_back()) {
            return write_each_at(self, at, pieces);
        }
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.record_failure(|| {
            self.contains(at, len)?;
            self.disk_file.write_pieces(at, pieces)
        })
    }

    fn zero_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.record_failure(|| {
            self.contains(at, len)?;
            let held = self.device().map_or(0, |device| device.hold_zeroes(at, len)) as u64;
            self.disk_file.zero(self.zeroing, at + held, len - held)
        })
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        // A failed read counts too: the kernel may report here that an earlier write was lost.
        self.record_failure(|| {
            self.contains(at, buffer.len() as u64)?;
            let held = self.device().map_or(0, |device| device.read_held(at, buffer));
            self.disk_file.read(at + held as u64, &mut buffer[held..])
        })
    }

    fn parking_space(&self, file_max: u64) -> ParkingSpace {
        let space = match &self.kind {
            TargetKind::File(_) if !self.was_there => {
                file::parking_space(self.disk_file.file(), self.size, file_max)
            }
            TargetKind::Device(device) => device.parking_space(),
            TargetKind::File(_) | TargetKind::Patched => ParkingSpace {
                range: 0..0,
                limited_by: "the disk of the stage before is changed in place".to_owned(),
            },
        };
        self.parking_end.store(space.range.end, Ordering::Relaxed);
        space
    }

    fn park_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.record_failure(|| {
            let len = bytes.len() as u64;
            self.contains_parked(at, len)?;
            // First: a write that fails may have made the file longer.
            self.parked_end.fetch_max(at + len, Ordering::Relaxed);
            let held = self.device().map_or(0, |device| device.hold(at, bytes));
            self.disk_file.write(at + held as u64, &bytes[held..])
        })
    }

    fn read_parked_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.record_failure(|| {
            self.contains_parked(at, buffer.len() as u64)?;
            let held = self.device().map_or(0, |device| device.read_held(at, buffer));
            self.disk_file.read(at + held as u64, &mut buffer[held..])
        })
    }

    fn clear_parked_at(&self, at: u64, len: u64) -> io::Result<()> {
        let inside = self.size.saturating_sub(at).min(len);
        if inside > 0 {
            self.zero_at(at, inside)?;
        }
        self.record_failure(|| {
            self.contains_parked(at, len)?;
            // A file is cut there in the end, also one whose disk is preallocated.
            let how = self.device().map_or(Zeroing::Hole, |_| self.zeroing);
            self.disk_file.zero(how, at + inside, len - inside)
        })
    }

    fn starts_zeroed(&self) -> bool {
        self.starts_zeroed
    }

    fn sync(&self) -> io::Result<()> {
        self.intact()?;
        self.record_failure(|| self.disk_file.sync())?;
        // The kernel may have reported a lost write to another thread, which is about to set `broken`.
        drop(self.calls.write());
        self.intact()
    }
}

impl Disk {
    /// Rejects what crosses the end: a file would grow, and the rest of a device has to stay zero.
    fn contains(&self, at: u64, len: u64) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            let text =
                format!("{len} bytes at {at} cross the end of a disk of {} bytes", self.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// As [`contains`](Self::contains), for parked bytes, which may lie behind the end.
    fn contains_parked(&self, at: u64, len: u64) -> io::Result<()> {
        let parking_end = self.parking_end.load(Ordering::Relaxed);
        if at.checked_add(len).is_some_and(|end| end <= parking_end) {
            return Ok(());
        }
        self.contains(at, len)
    }

    pub(super) fn record_failure<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _call = self.calls.read();
        act().map_err(|error| {
            self.broken.store(true, Ordering::Relaxed);
            plain(error)
        })
    }
}
