//! Data and holes of a file, by `SEEK_DATA` and `SEEK_HOLE`.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::source_file::SourceFile;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSegment {
    pub range: Range<u64>,
    /// Reads as zeroes.
    pub is_hole: bool,
}

/// The segments of a file, in order. Devices, and file systems without `SEEK_HOLE`, have no holes.
pub(crate) struct FileSegments {
    content: Arc<SourceFile>,
    at: u64,
    holes: bool,
}

impl FileSegments {
    pub fn new(content: Arc<SourceFile>, from: u64, holes: bool) -> Self {
        Self { content, at: from, holes }
    }
}

impl Iterator for FileSegments {
    type Item = FileSegment;

    fn next(&mut self) -> Option<FileSegment> {
        let (file, size, at) = (self.content.file(), self.content.size(), self.at);
        if at >= size {
            return None;
        }
        let segment = match self.holes.then(|| next_segment(file, at, size)) {
            Some(segment) => segment,
            None => FileSegment { range: at..size, is_hole: false },
        };
        self.at = segment.range.end;
        Some(segment)
    }
}

/// The segment that starts at `at`; `size` is the size of the file.
fn next_segment(file: &File, at: u64, size: u64) -> FileSegment {
    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.clamp(at, size),
        Err(Errno::NXIO) => size,
        Err(_) => return FileSegment { range: at..size, is_hole: false },
    };
    if data > at {
        return FileSegment { range: at..data, is_hole: true };
    }
    // A hole at `at` contradicts `SEEK_DATA`: the file changes. Take the rest as data.
    let end = match seek(file, SeekFrom::Hole(at)) {
        Ok(hole) if hole > at => hole.min(size),
        _ => size,
    };
    FileSegment { range: at..end, is_hole: false }
}

/// The ranges with data, at most `max` of them: if there are more, the smallest holes count as data.
pub(crate) fn data_ranges(content: &Arc<SourceFile>, max: usize) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut hole_min = 0;
    for segment in FileSegments::new(Arc::clone(content), 0, true) {
        if !segment.is_hole {
            push_or_merge(&mut ranges, segment.range, hole_min);
        }
        while ranges.len() > max.max(1) {
            hole_min = (2 * hole_min).max(8192);
            for range in std::mem::take(&mut ranges) {
                push_or_merge(&mut ranges, range, hole_min);
            }
        }
    }
    ranges
}

fn push_or_merge(ranges: &mut Vec<Range<u64>>, range: Range<u64>, hole_min: u64) {
    match ranges.last_mut() {
        Some(last) if range.start - last.end <= hole_min => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use testkit::{Fill, SparseDisk};

    use super::*;

    fn file_with(data: &[u64], len: u64) -> (tempfile::NamedTempFile, Arc<SourceFile>) {
        let with = |disk: SparseDisk, at: &u64| disk.with(*at, 4096, Fill::Pattern);
        let disk = data.iter().fold(SparseDisk::new(len), with);
        let file = tempfile::NamedTempFile::new().unwrap();
        disk.write_to(file.path());
        let content = Arc::new(SourceFile::open(file.path()).unwrap());
        (file, content)
    }

    #[test]
    fn ranges_contain_all_data() {
        let data = [0, 1 << 20, (1 << 20) + 4096, 5 << 20];
        let (_file, content) = file_with(&data, 6 << 20);
        let ranges = data_ranges(&content, 100);
        for at in data {
            assert!(ranges.iter().any(|range| range.start <= at && at + 4096 <= range.end), "{at}");
        }
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        let (_file, empty) = file_with(&[], 1 << 20);
        let all: Vec<_> = FileSegments::new(empty, 0, true).collect();
        assert!(all.len() == 1 && all[0].range == (0..1 << 20));
    }

    #[test]
    fn map_that_is_too_long_loses_its_smallest_holes() {
        let data: Vec<u64> = (0..64).map(|n| n * 65536).chain([100 << 20]).collect();
        let (_file, content) = file_with(&data, 200 << 20);
        let ranges = data_ranges(&content, 4);
        assert!(ranges.len() <= 4, "{ranges:?}");
        for at in data {
            assert!(ranges.iter().any(|range| range.start <= at && at + 4096 <= range.end), "{at}");
        }
        assert!(ranges.iter().all(|range| range.end <= 200 << 20));
        assert!(ranges[0].end <= 99 << 20, "the large hole stays");
    }
}
