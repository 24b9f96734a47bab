//! The last step of every route: writes guest data to the sink and counts it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::activity_times::{Activity, ActivityTimes};
use crate::error::Error;
use crate::progress::Progress;
use crate::sink::Sink;
use crate::zeroes::{Run, runs};

/// A sink with its path for messages and the counters of what is written to it.
#[derive(Clone)]
pub struct CountingSink {
    inner: Arc<dyn Sink>,
    path: PathBuf,
    progress: Arc<Progress>,
}

impl CountingSink {
    /// Writes to `inner`, called `path` in messages.
    pub fn new(inner: Arc<dyn Sink>, path: &Path, progress: &Arc<Progress>) -> Self {
        Self { inner, path: path.to_owned(), progress: Arc::clone(progress) }
    }

    /// Writes the parts of `bytes` that are not zero to guest address `at`.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn write_nonzero(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        for run in runs(bytes, at) {
            match run {
                Run::Data(range) => self.write(at + range.start as u64, &bytes[range])?,
                Run::Zero(range) => self.zero(at + range.start as u64, range.len() as u64)?,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` to guest address `at`.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.inner.write_at(at, bytes).map_err(|error| self.failed("write to", error))?;
        self.progress.add_written(bytes.len() as u64);
        Ok(())
    }

    /// Writes adjacent pieces from guest address `at` on.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn write_pieces(&self, at: u64, pieces: &[&[u8]]) -> Result<(), Error> {
        self.inner.write_pieces_at(at, pieces).map_err(|error| self.failed("write to", error))?;
        self.progress.add_written(pieces.iter().map(|piece| piece.len() as u64).sum());
        Ok(())
    }

    /// Makes the range read as zeroes. Nothing is written if the sink starts zeroed.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn zero(&self, at: u64, len: u64) -> Result<(), Error> {
        if !self.inner.starts_zeroed() {
            self.inner.zero_at(at, len).map_err(|error| self.failed("write zeroes to", error))?;
        }
        self.progress.add_zero(len);
        Ok(())
    }

    /// Where the time of the import is counted.
    pub fn times(&self) -> &ActivityTimes {
        self.progress.times()
    }

    /// The sink itself, for what is not counted.
    pub fn inner(&self) -> &dyn Sink {
        &*self.inner
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.times().measure(Activity::Sync, || self.inner.sync());
        synced.map_err(|error| self.failed("make durable", error))
    }

    /// An I/O error of this target.
    pub fn failed(&self, what: &'static str, source: io::Error) -> Error {
        Error::Target { what, path: self.path.clone(), source }
    }
}
