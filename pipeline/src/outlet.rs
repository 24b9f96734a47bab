//! The last step of every route: guest data goes into the sink, counted, and zeroes need no writing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::progress::Progress;
use crate::sink::Sink;
use crate::zeroes::{Run, runs};

/// A sink with its name for messages, the counters it moves, and the end that nothing may be written behind.
#[derive(Clone)]
pub struct Outlet {
    sink: Arc<dyn Sink>,
    path: PathBuf,
    progress: Arc<Progress>,
}

impl Outlet {
    /// Writes to `sink`, called `path` in messages.
    pub fn new(sink: Arc<dyn Sink>, path: &Path, progress: &Arc<Progress>) -> Self {
        Self { sink, path: path.to_owned(), progress: Arc::clone(progress) }
    }

    /// Writes the parts of `bytes` that are not zero to guest address `at`.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn scan(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        for run in runs(bytes, at) {
            match run {
                Run::Data(range) => self.data(at + range.start as u64, &bytes[range])?,
                Run::Zero(range) => self.zero(at + range.start as u64, range.len() as u64)?,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` to guest address `at`.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn data(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.sink.write_at(at, bytes).map_err(|error| self.failed("write to", error))?;
        self.progress.add_written(bytes.len() as u64);
        Ok(())
    }

    /// Writes pieces that follow one another to guest address `at`.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn pieces(&self, at: u64, pieces: &[&[u8]]) -> Result<(), Error> {
        self.sink.write_pieces_at(at, pieces).map_err(|error| self.failed("write to", error))?;
        self.progress.add_written(pieces.iter().map(|piece| piece.len() as u64).sum());
        Ok(())
    }

    /// The guest reads zeroes here: nothing to do where the sink began as zeroes.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn zero(&self, at: u64, len: u64) -> Result<(), Error> {
        if !self.sink.starts_zeroed() {
            self.sink.zero_at(at, len).map_err(|error| self.failed("write zeroes to", error))?;
        }
        self.progress.add_zero(len);
        Ok(())
    }

    /// The sink itself, for what is not guest data.
    pub fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// Makes everything before it durable.
    ///
    /// # Errors
    /// [`Error::Target`].
    pub fn sync(&self) -> Result<(), Error> {
        self.sink.sync().map_err(|error| self.failed("make durable", error))
    }

    /// An error of the operating system about this target.
    pub fn failed(&self, what: &'static str, source: io::Error) -> Error {
        Error::Target { what, path: self.path.clone(), source }
    }
}
