//! What the tests of whole imports have in common: a source in memory that fails on purpose.
#![allow(dead_code)] // each program of tests uses a part of it

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use pipeline::{
    ByteStream, Error, Extent, Options, Progress, Report, Source, SourceError, SourceFacts, Target,
    import,
};

/// Bytes in memory behind the face of a source, which can be made to fail.
pub struct Memory {
    bytes: Bytes,
    pub facts: SourceFacts,
    chunk: usize,
    reads: Arc<AtomicUsize>,
    /// The read with this number fails, and all after it.
    fails_at: usize,
    /// The extents that the source reports; none if this is empty.
    pub extents: Vec<Extent>,
    /// It is a guest's disk, whatever it looks like.
    pub is_disk: bool,
}

impl Memory {
    pub fn new(bytes: impl Into<Bytes>, ranges: bool) -> Self {
        let bytes = bytes.into();
        let facts = SourceFacts {
            name: "memory".into(),
            length: Some(bytes.len() as u64),
            ranges,
            validator: ranges.then(|| "one".into()),
            streams_max: 3,
        };
        Self {
            bytes,
            facts,
            chunk: 100_000,
            reads: Arc::default(),
            fails_at: usize::MAX,
            extents: vec![],
            is_disk: false,
        }
    }

    /// The same source, not read yet.
    pub fn again(&self) -> Self {
        Self { facts: self.facts.clone(), ..Self::new(self.bytes.clone(), self.facts.ranges) }
    }

    pub fn failing_at(mut self, read: usize) -> Self {
        self.fails_at = read;
        self
    }
}

impl Source for Memory {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        if self.extents.is_empty() {
            return Ok(None);
        }
        let inside = self.extents.iter().filter(|extent| extent.range.start >= at);
        assert!(end == self.facts.length.unwrap());
        Ok(Some(inside.take(2).cloned().collect())) // never all at once
    }

    fn is_disk(&self) -> bool {
        self.is_disk
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        assert!(self.facts.ranges || (at == 0 && end.is_none()), "only in order");
        let end = end.map_or(self.bytes.len(), |end| end as usize);
        Box::new(Part {
            bytes: self.bytes.slice(at as usize..end),
            chunk: self.chunk,
            reads: Arc::clone(&self.reads),
            fails_at: self.fails_at,
        })
    }
}

struct Part {
    bytes: Bytes,
    chunk: usize,
    reads: Arc<AtomicUsize>,
    fails_at: usize,
}

impl ByteStream for Part {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.fails_at {
            return Err("the connection broke".into());
        }
        let len = self.chunk.min(self.bytes.len());
        Ok((len > 0).then(|| self.bytes.split_to(len)))
    }
}

pub fn target(path: &Path) -> Target {
    Target { path: path.into(), available: None, grow_to: None, preallocate: false }
}

pub fn run(source: &Memory, path: &Path, options: &Options) -> Result<Report, Error> {
    import(source, &target(path), options, &Arc::new(Progress::default()))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Imports `image` by each route and compares.
pub fn check(image: &[u8], expected: &[u8], options: &Options) {
    let cases = [
        ("ranges", Memory::new(image.to_vec(), true)),
        ("one pass", Memory::new(image.to_vec(), false)),
        ("one pass", Memory::new(gzip(image), false)),
    ];
    for (route, source) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let options = Options { scratch: Some(directory.path().into()), ..options.clone() };
        let report = run(&source, &path, &options).unwrap();
        let disk = fs::read(&path).unwrap();
        assert_eq!(disk.len(), expected.len(), "{route}");
        let differs = disk.iter().zip(expected).position(|(ours, theirs)| ours != theirs);
        assert_eq!(differs, None, "{route}: {report:?}");
        assert_eq!(report.virtual_size, expected.len() as u64, "{route}");
        assert_eq!(report.bytes_written + report.zero_bytes, report.virtual_size, "{route}");
        if report.scratch_bytes == 0 {
            assert_eq!(report.route, route);
        }
    }
}
