//! Targets for tests: one in memory, and one with planned failures.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::sink::{ParkingSpace, Sink};

/// What old data looks like.
pub const GARBAGE: u8 = 0xaa;

/// A target in memory, of a fixed size.
#[derive(Debug)]
pub struct MemorySink {
    bytes: Mutex<Vec<u8>>,
    /// Bytes of the disk; what is behind them is for parking.
    size: usize,
    starts_zeroed: bool,
}

impl MemorySink {
    /// Starts zeroed, like a new file.
    pub fn zeroed(size: usize) -> Self {
        Self { bytes: Mutex::new(vec![0; size]), size, starts_zeroed: true }
    }

    /// Full of old data ([`GARBAGE`]): like a device that cannot zero itself.
    pub fn garbage(size: usize) -> Self {
        Self { bytes: Mutex::new(vec![GARBAGE; size]), size, starts_zeroed: false }
    }

    /// With `len` bytes behind the disk in which bytes can be parked.
    #[must_use]
    pub fn with_parking_space(mut self, len: usize) -> Self {
        let garbage = if self.starts_zeroed { 0 } else { GARBAGE };
        self.bytes.get_mut().resize(self.size + len, garbage);
        self
    }

    /// All of it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_inner()
    }

    /// A copy of all of it.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock()
    }

    fn with_part<T>(&self, at: u64, len: u64, act: impl FnOnce(&mut [u8]) -> T) -> io::Result<T> {
        self.with_part_of(self.size, at, len, act)
    }

    fn with_part_of<T>(
        &self,
        size: usize,
        at: u64,
        len: u64,
        act: impl FnOnce(&mut [u8]) -> T,
    ) -> io::Result<T> {
        let part =
            usize::try_from(at).ok().zip(at.checked_add(len).and_then(|end| end.try_into().ok()));
        let mut bytes = self.lock();
        let bytes = &mut bytes[..size];
        match part.and_then(|(from, to): (usize, usize)| bytes.get_mut(from..to)) {
            Some(part) => Ok(act(part)),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "over the end of the target")),
        }
    }
}

impl Sink for MemorySink {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with_part(at, bytes.len() as u64, |part| part.copy_from_slice(bytes))
    }

    fn zero_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.with_part(at, len, |part| part.fill(0))
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with_part(at, buffer.len() as u64, |part| buffer.copy_from_slice(part))
    }

    fn parking_space(&self, _file_max: u64) -> ParkingSpace {
        let range = 0..self.lock().len() as u64;
        ParkingSpace { range, limited_by: "the memory ends there".to_owned() }
    }

    fn park_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let end = self.lock().len();
        self.with_part_of(end, at, bytes.len() as u64, |part| part.copy_from_slice(bytes))
    }

    fn read_parked_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = self.lock().len();
        self.with_part_of(end, at, buffer.len() as u64, |part| buffer.copy_from_slice(part))
    }

    fn clear_parked_at(&self, at: u64, len: u64) -> io::Result<()> {
        let end = self.lock().len();
        self.with_part_of(end, at, len, |part| part.fill(0))
    }

    fn starts_zeroed(&self) -> bool {
        self.starts_zeroed
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts the calls to another sink, and fails the planned ones. Everything else works, also afterwards: who
/// does not look at each result will take a damaged disk for a good one.
#[derive(Debug)]
pub struct FailingSink<S> {
    inner: S,
    fail_write: Option<u64>,
    fail_sync: Option<u64>,
    writes: AtomicU64,
    syncs: AtomicU64,
}

impl<S> FailingSink<S> {
    /// Fails nothing yet.
    pub fn new(inner: S) -> Self {
        let (writes, syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inner, fail_write: None, fail_sync: None, writes, syncs }
    }

    /// The `n`-th call that changes something, from 0, fails for lack of space and changes nothing.
    pub fn fail_write(self, n: u64) -> Self {
        Self { fail_write: Some(n), ..self }
    }

    /// The `n`-th sync, from 0, fails.
    pub fn fail_sync(self, n: u64) -> Self {
        Self { fail_sync: Some(n), ..self }
    }

    /// Calls of write and zero, the failed one included.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Calls of sync, the failed one included.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// The sink inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The sink inside.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn count_write(&self) -> io::Result<()> {
        if self.fail_write == Some(self.writes.fetch_add(1, Ordering::Relaxed)) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on device"));
        }
        Ok(())
    }
}

impl<S: Sink> Sink for FailingSink<S> {
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.count_write()?;
        self.inner.write_at(at, bytes)
    }

    fn zero_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.count_write()?;
        self.inner.zero_at(at, len)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(at, buffer)
    }

    fn parking_space(&self, file_max: u64) -> ParkingSpace {
        self.inner.parking_space(file_max)
    }

    fn park_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.count_write()?;
        self.inner.park_at(at, bytes)
    }

    fn read_parked_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_parked_at(at, buffer)
    }

    fn clear_parked_at(&self, at: u64, len: u64) -> io::Result<()> {
        self.count_write()?;
        self.inner.clear_parked_at(at, len)
    }

    fn starts_zeroed(&self) -> bool {
        self.inner.starts_zeroed()
    }

    fn sync(&self) -> io::Result<()> {
        if self.fail_sync == Some(self.syncs.fetch_add(1, Ordering::Relaxed)) {
            return Err(io::Error::other("input/output error"));
        }
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sink_stores_writes_and_rejects_those_beyond_its_end() {
        let sink = MemorySink::garbage(10);
        sink.write_at(2, b"abc").unwrap();
        sink.zero_at(7, 3).unwrap();
        let mut read = [0; 3];
        sink.read_at(3, &mut read).unwrap();
        assert_eq!(&read, b"bc\xaa");
        assert!(sink.write_at(8, b"abc").is_err());
        assert!(sink.zero_at(u64::MAX, 2).is_err());
        assert!(sink.read_at(9, &mut read).is_err());
        assert_eq!(sink.into_bytes(), b"\xaa\xaaabc\xaa\xaa\0\0\0");
    }

    #[test]
    fn exactly_the_call_that_was_named_fails() {
        let sink = FailingSink::new(MemorySink::zeroed(4)).fail_write(1).fail_sync(0);
        sink.write_at(0, b"a").unwrap();
        assert!(sink.zero_at(0, 1).is_err());
        sink.write_at(1, b"b").unwrap();
        assert!(sink.sync().is_err());
        sink.sync().unwrap();
        assert_eq!((sink.writes(), sink.syncs()), (3, 2));
        assert_eq!(sink.into_inner().into_bytes(), b"ab\0\0");
    }
}
