//! A disk on a block device, whose first bytes are written last.
//!
//! A device cannot be renamed at the end. Its first block makes it look like a disk, so the first MiB is kept in memory
//! until everything else is durable. Until then the device starts with zeroes and a mark of the unfinished import, by
//! which the next process recognizes that it may continue.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use contract::ByteCount;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::dual_path_file::{DualPathFile, Zeroing};
use super::free_space;
use super::io_error::{Doing, failed, refused};
use super::unmap::{Preparation, UnmapLimits, unmap};
use super::{DiskOptions, Identity};
use crate::error::Error;
use crate::sink::ParkingSpace;
use crate::sys;

/// Bytes at the beginning that are held back: partition tables, boot loaders and the heads of all common file systems.
pub const HEAD: u64 = 1 << 20;

/// Bytes that are written last of all: few enough to be written atomically.
const FIRST: usize = 4096;

/// The mark is the last block of the head: what it replaces is overwritten before the first block comes.
const MARK: u64 = HEAD - Mark::LEN as u64;

/// A device no larger than this is simply written.
const SMALL: u64 = 2 * HEAD;

/// Bytes that are zeroed by one request, which cannot be interrupted.
pub const PIECE: u64 = 1 << 30;

/// A device that is being filled.
pub struct Device {
    /// Bytes of the device, which may be more than the disk has.
    length: u64,
    mark: Mark,
    /// The first bytes of the disk.
    head: Mutex<Vec<u8>>,
}

/// A [`Device`], and how to treat it.
pub struct Opened {
    pub device: Device,
    pub resumed: bool,
    pub starts_zeroed: bool,
    pub zeroing: Zeroing,
}

/// A device that was just closed is busy for a while: udev examines it, or a process being started has
/// not closed the descriptors that it inherited.
pub const TRIES: u32 = 10;
/// Between two attempts.
pub const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Opens the device exclusively: fails while a mount or another exclusive user has it.
pub fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32);
    let is_busy = |error: &io::Error| error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
    let mut opened = options.open(path);
    for _ in 1..TRIES {
        if !opened.as_ref().is_err_and(is_busy) {
            break;
        }
        thread::sleep(BETWEEN_TRIES);
        opened = options.open(path);
    }
    let device = opened.map_err(|error| {
        if is_busy(&error) {
            let because = "it is in use: mounted, or held by another program";
            return failed("open", path, io::Error::new(io::ErrorKind::ResourceBusy, because));
        }
        failed("open", path, error)
    })?;
    // Opening such a device for writing works, and only the first write fails.
    if sys::is_read_only(&device).doing("examine", path)? {
        return Err(refused("write to", path, "it is read-only"));
    }
    Ok(device)
}

/// Bytes of a device that holds a finished disk and is large enough for `size` bytes.
pub fn finished_length(disk_file: &DualPathFile, path: &Path, size: u64) -> Result<u64, Error> {
    let length = free_space::length(disk_file.file()).doing("examine", path)?;
    if length < size {
        let (needed, offered) = (ByteCount::new(size), ByteCount::new(length));
        return Err(Error::TooLarge { needed, offered });
    }
    if Mark::read(disk_file).is_some() {
        return Err(refused("change", path, "the stage before was not finished"));
    }
    Ok(length)
}

impl Device {
    /// Resumes an earlier import if there is one, or else wipes the device.
    pub fn prepare(
        disk_file: &DualPathFile,
        path: &Path,
        options: &DiskOptions,
        limits: Option<UnmapLimits>,
    ) -> Result<Opened, Error> {
        let length = free_space::length(disk_file.file()).doing("examine", path)?;
        if length < options.size {
            let (needed, offered) = (ByteCount::new(options.size), ByteCount::new(length));
            return Err(Error::TooLarge { needed, offered });
        }
        let fits = |mark: &Mark| (mark.length, mark.size) == (length, options.size);
        let earlier = if options.resume { Mark::read(disk_file).filter(fits) } else { None };
        let resumed = earlier.is_some();
        let mark = match earlier {
            Some(mark) => mark,
            None => wipe_and_mark(disk_file, length, options, limits).doing("wipe", path)?,
        };
        let starts_zeroed = mark.preparation == Preparation::Zeroed;
        let zeroing = match (options.preallocate, mark.preparation) {
            (true, _) => Zeroing::Write,
            (false, Preparation::Zeroed) => Zeroing::Hole,
            (false, Preparation::UnmapsSlowly) => Zeroing::LongHole,
            (false, Preparation::Nothing) if sys::can_discard(disk_file.file()) => Zeroing::Command,
            (false, Preparation::Nothing) => Zeroing::CommandWhereNotZero,
        };
        let head = Mutex::new(vec![0; HEAD.min(options.size) as usize]);
        Ok(Opened { device: Self { length, mark, head }, resumed, starts_zeroed, zeroing })
    }

    /// How many bytes at the beginning of the disk are held back.
    pub fn held_back(&self) -> u64 {
        HEAD.min(self.mark.size)
    }

    /// Keeps what belongs to the head, and returns how many bytes those were.
    pub fn hold(&self, at: u64, bytes: &[u8]) -> usize {
        self.with_head(at, bytes.len() as u64, |head| head.copy_from_slice(&bytes[..head.len()]))
    }

    /// As [`Self::hold`], for zeroes.
    pub fn hold_zeroes(&self, at: u64, len: u64) -> usize {
        self.with_head(at, len, |head| head.fill(0))
    }

    /// Fills what belongs to the head, and returns how many bytes those were.
    pub fn read_held(&self, at: u64, buffer: &mut [u8]) -> usize {
        self.with_head(at, buffer.len() as u64, |head| buffer[..head.len()].copy_from_slice(head))
    }

    fn with_head(&self, at: u64, len: u64, act: impl FnOnce(&mut [u8])) -> usize {
        let held = self.held_back();
        if at >= held {
            return 0;
        }
        let end = held.min(at.saturating_add(len));
        act(&mut self.lock()[at as usize..end as usize]);
        (end - at) as usize
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.head.lock()
    }

    pub fn identity(&self) -> Identity {
        // Not the device number, which may change at a restart.
        Identity { device: 0, inode: 0, length: self.length, mark: self.mark.nonce }
    }

    /// Where bytes may be parked: never where the first bytes of a disk would be.
    pub fn parking_space(&self) -> ParkingSpace {
        let behind = self.length - self.mark.size;
        let limited_by = match behind {
            0 => "the device is exactly as large as the disk".to_owned(),
            _ => format!("the device ends {behind} bytes behind the disk"),
        };
        ParkingSpace { range: HEAD..self.length.max(HEAD), limited_by }
    }

    /// Zeroes what is behind the disk, where bytes may have been parked up to `parked_end`, then writes the first block.
    pub fn finish(
        &self,
        disk_file: &DualPathFile,
        zeroing: Zeroing,
        parked_end: u64,
    ) -> io::Result<()> {
        let is_zeroed = self.mark.preparation == Preparation::Zeroed;
        let end = if is_zeroed { parked_end } else { self.length };
        let mut at = self.mark.size;
        while at < end {
            let len = PIECE.min(end - at);
            disk_file.zero(zeroing, at, len)?;
            at += len;
        }
        disk_file.sync()?;
        self.write_head(disk_file).inspect_err(|_| {
            // The first error is the cause.
            let _ = Self::wipe_head(disk_file, self.length);
        })
    }

    fn write_head(&self, disk_file: &DualPathFile) -> io::Result<()> {
        let head = self.lock();
        let (first, rest) = head.split_at(FIRST.min(head.len()));
        if !rest.is_empty() {
            disk_file.write(FIRST as u64, rest)?;
            disk_file.sync()?;
        }
        disk_file.write(0, first)?;
        disk_file.sync()
    }

    /// Removes the beginning of the disk and the mark of the import.
    pub fn abandon(&self, disk_file: &DualPathFile) -> io::Result<()> {
        Self::wipe_head(disk_file, self.length)
    }

    pub fn wipe_head(disk_file: &DualPathFile, length: u64) -> io::Result<()> {
        disk_file.zero(Zeroing::Write, 0, HEAD.min(length))?;
        disk_file.sync()
    }
}

/// Makes an old disk unrecognisable, zeroes the whole device if it can do that by itself, and marks it.
fn wipe_and_mark(
    disk_file: &DualPathFile,
    length: u64,
    options: &DiskOptions,
    limits: Option<UnmapLimits>,
) -> io::Result<Mark> {
    Device::wipe_head(disk_file, length)?;
    let preparation = if length <= SMALL {
        disk_file.zero(Zeroing::Write, 0, length)?;
        Preparation::Zeroed
    } else {
        match limits.filter(|_| !options.preallocate) {
            Some(limits) => unmap(disk_file, length, &limits)?,
            None => Preparation::Nothing,
        }
    };
    let mut nonce = [0; 8];
    getrandom(&mut nonce, GetRandomFlags::empty())?;
    let nonce = u64::from_le_bytes(nonce);
    let mark = Mark { nonce, length, size: options.size, preparation };
    // A disk smaller than its head is not resumed.
    if options.size >= HEAD {
        disk_file.write(MARK, &mark.encode())?;
    }
    disk_file.sync()?;
    Ok(mark)
}

/// Written to a device while an import into it is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// Random for each import, so that old data on a device cannot pass for this one.
    nonce: u64,
    length: u64,
    size: u64,
    preparation: Preparation,
}

impl Mark {
    const LEN: usize = 4096;
    const MAGIC: [u8; 16] = *b"cdi-half-written";

    fn encode(&self) -> [u8; Self::LEN] {
        let mut block = [0; Self::LEN];
        let fields = [self.nonce, self.length, self.size, self.preparation as u64];
        block[..16].copy_from_slice(&Self::MAGIC);
        for (place, field) in block[16..].as_chunks_mut().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        block
    }

    fn decode(block: &[u8; Self::LEN]) -> Option<Self> {
        let (fields, _) = block[16..].as_chunks();
        let [nonce, length, size, preparation] =
            [0, 1, 2, 3].map(|index: usize| u64::from_le_bytes(fields[index]));
        let preparation = Preparation::from_number(preparation)?;
        let mark = Self { nonce, length, size, preparation };
        (mark.encode() == *block).then_some(mark)
    }

    /// The mark of an earlier import. A device that cannot be read has none: writing will fail.
    fn read(disk_file: &DualPathFile) -> Option<Self> {
        let mut block = [0; Self::LEN];
        disk_file.read(MARK, &mut block).ok()?;
        Self::decode(&block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_as_it_was_written_and_no_bit_can_change() {
        use Preparation::{Nothing, UnmapsSlowly, Zeroed};
        for preparation in [Nothing, Zeroed, UnmapsSlowly] {
            let mark = Mark { nonce: 7 << 40, length: 5 << 30, size: 4 << 30, preparation };
            let block = mark.encode();
            assert_eq!(Mark::decode(&block), Some(mark));
            for at in (0..16).chain(41..Mark::LEN) {
                let mut block = block;
                block[at] ^= 0x10;
                assert_eq!(Mark::decode(&block), None, "byte {at}");
            }
        }
        assert_eq!(Mark::decode(&[0; Mark::LEN]), None);
    }
}
