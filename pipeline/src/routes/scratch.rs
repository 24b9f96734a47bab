//! Scratch space: an image whose clusters come in an order that one pass cannot place is decompressed into a file
//! first, which is then read by ranges.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::error::Error;
use crate::source::{ByteStream, Source, SourceError, SourceFacts};
use crate::zeroes::is_zero;

/// An unnamed file that is removed with the process.
pub struct Scratch {
    file: Arc<File>,
    facts: SourceFacts,
}

impl Scratch {
    /// Fills a file in `directory` with all bytes of `reader`; `name` is the source in messages.
    ///
    /// # Errors
    /// What `explain` makes of a reader's error, and [`Error::Scratch`] of the scratch file.
    pub fn fill(
        directory: &Path,
        name: &str,
        reader: &mut dyn std::io::Read,
        explain: impl Fn(std::io::Error) -> Error,
    ) -> Result<Self, Error> {
        const STEP: usize = 1 << 20;
        let failed = |source| Error::Scratch { path: directory.to_owned(), source };
        let file = tempfile::tempfile_in(directory).map_err(failed)?;
        let mut buffer = vec![0; STEP];
        let mut at = 0;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => {
                    if !is_zero(&buffer[..len]) {
                        file.write_all_at(&buffer[..len], at).map_err(failed)?;
                    }
                    at += len as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(explain(error)),
            }
        }
        file.set_len(at).map_err(failed)?;
        let facts = SourceFacts {
            name: name.to_owned(),
            length: Some(at),
            ranges: true,
            validator: None,
            streams_max: 2,
        };
        Ok(Self { file: Arc::new(file), facts })
    }

    /// Bytes that went through it.
    pub fn len(&self) -> u64 {
        self.facts.length.unwrap_or(0)
    }
}

impl Source for Scratch {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let end = end.unwrap_or(u64::MAX).min(self.len());
        Box::new(Part { file: Arc::clone(&self.file), at, end })
    }
}

struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl ByteStream for Part {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        const STEP: u64 = 256 << 10;
        let len = self.end.saturating_sub(self.at).min(STEP) as usize;
        if len == 0 {
            return Ok(None);
        }
        let mut bytes = BytesMut::zeroed(len);
        self.file.read_exact_at(&mut bytes, self.at)?;
        self.at += len as u64;
        Ok(Some(bytes.freeze()))
    }
}
