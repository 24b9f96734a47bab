//! A source whose waits are counted.

use std::sync::Arc;

use bytes::Bytes;

use crate::activity_times::Activity;
use crate::progress::Progress;
use crate::source::{ByteStream, Extent, Source, SourceError, SourceFacts};

/// Counts the time until each chunk of `inner` as [`Activity::NetworkWait`].
pub struct TimedSource<'a> {
    inner: &'a dyn Source,
    progress: &'a Arc<Progress>,
}

impl<'a> TimedSource<'a> {
    pub fn new(inner: &'a dyn Source, progress: &'a Arc<Progress>) -> Self {
        Self { inner, progress }
    }
}

impl Source for TimedSource<'_> {
    fn facts(&self) -> &SourceFacts {
        self.inner.facts()
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let progress = Arc::clone(self.progress);
        Box::new(TimedStream { inner: self.inner.open(at, end), progress })
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        let times = self.progress.times();
        times.measure(Activity::NetworkWait, || self.inner.extents(at, end))
    }

    fn is_disk(&self) -> bool {
        self.inner.is_disk()
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.inner.limit_receive_memory(bytes);
    }

    fn can_reopen(&self) -> bool {
        self.inner.can_reopen()
    }
}

struct TimedStream {
    inner: Box<dyn ByteStream>,
    progress: Arc<Progress>,
}

impl ByteStream for TimedStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let Self { inner, progress } = self;
        progress.times().measure(Activity::NetworkWait, || inner.next())
    }
}
