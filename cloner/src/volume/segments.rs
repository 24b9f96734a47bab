//! Where a file has data and where holes, as its file system tells.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::content::Content;

/// A stretch of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub range: Range<u64>,
    /// It reads as zeroes, and need not be read for that.
    pub is_hole: bool,
}

/// Goes through a file, stretch by stretch. Whoever cannot tell has no holes: devices, and some file systems.
pub(crate) struct Segments {
    content: Arc<Content>,
    at: u64,
    holes: bool,
}

impl Segments {
    pub fn new(content: Arc<Content>, from: u64, holes: bool) -> Self {
        Self { content, at: from, holes }
    }
}

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let (file, size, at) = (self.content.file(), self.content.size(), self.at);
        if at >= size {
            return None;
        }
        let segment = match self.holes.then(|| next_segment(file, at, size)) {
            Some(segment) => segment,
            None => Segment { range: at..size, is_hole: false },
        };
        self.at = segment.range.end;
        Some(segment)
    }
}

/// The stretch that begins at `at`, before `size`.
fn next_segment(file: &File, at: u64, size: u64) -> Segment {
    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.clamp(at, size),
        Err(Errno::NXIO) => size,
        Err(_) => return Segment { range: at..size, is_hole: false },
    };
    if data > at {
        return Segment { range: at..data, is_hole: true };
    }
    // No hole right behind data, however a file system may count.
    let end = match seek(file, SeekFrom::Hole(at)) {
        Ok(hole) if hole > at => hole.min(size),
        _ => size,
    };
    Segment { range: at..end, is_hole: false }
}

/// All data of a content, at most `most` ranges of it: the smallest holes between them count as data where there are more.
pub(crate) fn data_of(content: &Arc<Content>, most: usize) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut hole_min = 0;
    for segment in Segments::new(Arc::clone(content), 0, true) {
        if !segment.is_hole {
            push(&mut ranges, segment.range, hole_min);
        }
        while ranges.len() > most.max(1) {
            hole_min = (2 * hole_min).max(8192);
            for range in std::mem::take(&mut ranges) {
                push(&mut ranges, range, hole_min);
            }
        }
    }
    ranges
}

fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>, hole_min: u64) {
    match ranges.last_mut() {
        Some(last) if range.start - last.end <= hole_min => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use testkit::{Fill, SparseDisk};

    use super::*;

    fn file_with(data: &[u64], len: u64) -> (tempfile::NamedTempFile, Arc<Content>) {
        let with = |disk: SparseDisk, at: &u64| disk.with(*at, 4096, Fill::Pattern);
        let disk = data.iter().fold(SparseDisk::new(len), with);
        let file = tempfile::NamedTempFile::new().unwrap();
        disk.write_to(file.path());
        let content = Arc::new(Content::open(file.path()).unwrap());
        (file, content)
    }

    #[test]
    fn all_data_lies_in_the_ranges() {
        let data = [0, 1 << 20, (1 << 20) + 4096, 5 << 20];
        let (_file, content) = file_with(&data, 6 << 20);
        let ranges = data_of(&content, 100);
        for at in data {
            assert!(ranges.iter().any(|range| range.start <= at && at + 4096 <= range.end), "{at}");
        }
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        let (_file, empty) = file_with(&[], 1 << 20);
        let all: Vec<_> = Segments::new(empty, 0, true).collect();
        assert!(all.len() == 1 && all[0].range == (0..1 << 20));
    }

    #[test]
    fn a_map_that_would_be_too_long_forgets_its_smallest_holes() {
        let data: Vec<u64> = (0..64).map(|n| n * 65536).chain([100 << 20]).collect();
        let (_file, content) = file_with(&data, 200 << 20);
        let ranges = data_of(&content, 4);
        assert!(ranges.len() <= 4, "{ranges:?}");
        for at in data {
            assert!(ranges.iter().any(|range| range.start <= at && at + 4096 <= range.end), "{at}");
        }
        assert!(ranges.iter().all(|range| range.end <= 200 << 20));
        assert!(ranges[0].end <= 99 << 20, "the large hole stays");
    }
}
