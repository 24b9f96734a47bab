//! The decoder itself: every byte of the file is data, a table, or unknown.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::expected_regions::{ExpectedRegions, Region, Task};
use super::output::Output;
use super::parking::{self, ParkError, Parking};
use super::window::{Bytes, Window};
use super::{Limits, OnePassError};
use crate::Error;
use crate::index::{Layout, root_entry_len, table_at};

/// Unknown bytes parked at a time. A multiple of every cluster's size but the largest, which is parked as a whole.
const PARK_MAX: u64 = 1 << 20;
/// Reserved ranges are read in words.
const RESERVED_ENTRY: u64 = 8;

/// Decodes an image whose bytes come in order and only once.
#[derive(Debug)]
pub(super) struct Decoder {
    pub(super) layout: Arc<dyn Layout>,
    pub(super) limits: Limits,
    /// No more than `Limits::whole_image_bytes` have come: whatever is parked is in memory.
    is_small: bool,
    window: Window,
    /// Bytes before this have been passed on, understood, parked or dropped.
    pub(super) cursor: u64,
    /// The part of the file before `cursor` that cannot begin anything any more. Only compressed clusters lie behind it,
    /// which may overlap.
    solid: u64,
    /// What ends at `solid`, if it is known.
    before: Option<Task>,
    /// Begun, and waiting for bytes.
    current: Option<Region>,
    pub(super) expected: ExpectedRegions,
    pub(super) parking: Parking,
    /// Where the guest's last plain data began, in the file and on the disk.
    last_plain: Option<(u64, u64)>,
    /// Tables not read yet, the root included. At 0 the expected regions are complete, and other bytes are not used.
    pub(super) tables_left: usize,
    /// Offsets and indices of tables, while the root is being read.
    pub(super) tables: Vec<(u64, u32)>,
    /// Offsets of unused ranges, unless a table maps them: no need to park them.
    pub(super) unallocated: BTreeSet<u64>,
}

impl Decoder {
    /// Begins at the file's first byte. The header has been parsed from a copy of it.
    pub(super) fn new(layout: Arc<dyn Layout>, limits: Limits) -> Result<Self, Error> {
        let count = layout.table_count();
        let last_table = count.saturating_sub(1);
        let last_table = (last_table as u32, layout.table_len(last_table)); // formats bound their number
        let mut expected = ExpectedRegions::new(layout.table_len(0), last_table);
        for (host, name) in layout.reserved_ranges() {
            expected.add_long(Region { host, task: Task::Reserved(name) });
        }
        let root = layout.root_range();
        let (mut tables, mut tables_left) = (Vec::new(), 0);
        if !root.is_empty() {
            expected.add_long(Region { host: root, task: Task::Root });
            tables_left = 1;
        } else {
            for index in 0..count {
                if let Some(at) = table_at(&*layout, index, &[], 0)? {
                    tables.push((at, index as u32));
                }
            }
            tables_left += tables.len();
            expected.add_tables(tables.drain(..));
        }
        let head_len = layout.head_len();
        Ok(Self {
            parking: Parking::new(
                layout.virtual_size(),
                layout.park_alignment(),
                limits.parked_bytes.max(limits.whole_image_bytes),
            ),
            is_small: true,
            limits,
            window: Window::default(),
            cursor: head_len,
            solid: head_len,
            before: None,
            current: None,
            last_plain: None,
            expected,
            tables_left,
            tables,
            unallocated: BTreeSet::new(),
            layout,
        })
    }

    /// Permits parking behind the disk, in the whole clusters of `space`.
    pub(super) fn add_space_behind(&mut self, space: &Range<u64>) {
        self.parking.add_space_behind(space);
    }

    /// Takes the next bytes of the file, any number of them, and passes on to `output` what they mean.
    ///
    /// # Errors
    /// See [`OnePassError`]. Nothing may be supplied after one.
    pub(super) fn supply(
        &mut self,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let end = self.window.end(chunk);
        if self.is_small && end > self.limits.whole_image_bytes as u64 {
            self.is_small = false;
            self.parking.limit_memory(self.limits.parked_bytes, output)?;
        }
        while let Some(item) = self.next_item(end) {
            self.pass_unknown(item.host.start, chunk, output)?;
            self.check_overlap(&item)?;
            self.current = self.perform(item, chunk, output)?;
            self.check_index(0)?;
            if self.current.is_some() {
                break;
            }
        }
        if self.current.is_none() {
            let next_start = self.expected.next_start().unwrap_or(u64::MAX);
            self.pass_unknown(next_start, chunk, output)?;
        }
        let needed = match &self.current {
            Some(item) => item.host.start,
            None if self.tables_left > 0 => self.cursor,
            None => u64::MAX,
        };
        self.window.advance(chunk, needed);
        Ok(())
    }

    /// The file has ended. Passes on what is left, and zeroes again whatever is still parked in the target.
    ///
    /// # Errors
    /// See [`OnePassError`]; in particular when the file ended before all of the guest's data had come.
    pub(super) fn finish(mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        let file_len = self.window.position();
        while let Some(item) = self.next_item(u64::MAX) {
            self.check_overlap(&item)?;
            let (task, at) = (item.task, item.host.start);
            match task {
                // Its last sector need not be whole.
                Task::Compressed(guest) if file_len >= parking::tail_start(&item.host) => {
                    self.perform_compressed(at..file_len, guest, &[], output)?;
                }
                _ => {
                    let what = task.name(self.layout.names());
                    return Err(Error::OutsideFile { what, at, file_len }.into());
                }
            }
        }
        Ok(self.parking.abandon(output)?)
    }

    /// What is next, if it begins before `end`.
    fn next_item(&mut self, end: u64) -> Option<Region> {
        if self.current.is_some() {
            return self.current.take();
        }
        self.expected.next_start().filter(|&start| start < end).and_then(|_| self.expected.pop())
    }

    /// Does what can be done of `item` with the bytes so far, and returns what is left of it.
    fn perform(
        &mut self,
        item: Region,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<Option<Region>, OnePassError> {
        let end = self.window.end(chunk);
        match item.task {
            Task::Plain(guest) => return self.perform_plain(item.host, guest, chunk, output),
            Task::Compressed(_) | Task::Table(_) if item.host.end > end => return Ok(Some(item)),
            Task::Compressed(guest) => self.perform_compressed(item.host, guest, chunk, output)?,
            Task::Table(index) => {
                let table = self.window.bytes(&item.host, chunk);
                self.pass(item.host.end, item.task);
                self.read_table(index, item.host.start, table.as_slice(chunk), output)?;
                self.settle_if_complete(output)?;
            }
            Task::Root | Task::Reserved(_) => {
                let entry_len = match item.task {
                    Task::Root => root_entry_len(&*self.layout),
                    _ => RESERVED_ENTRY,
                };
                let mut available = item.host.end.min(end) - item.host.start;
                if item.host.end > end {
                    available -= available % entry_len;
                }
                let available = item.host.start..item.host.start + available;
                let bytes = self.window.bytes(&available, chunk);
                self.pass(available.end, item.task);
                let is_last = available.end == item.host.end;
                if item.task == Task::Root {
                    self.read_root(available.start, entry_len, bytes.as_slice(chunk))?;
                    if is_last {
                        self.complete_root(output)?;
                    }
                } else {
                    self.read_reserved(bytes.as_slice(chunk));
                }
                return Ok((!is_last)
                    .then_some(Region { host: available.end..item.host.end, task: item.task }));
            }
        }
        Ok(None)
    }

    /// The common case: nothing but a look at the map of the disk, and a call.
    fn perform_plain(
        &mut self,
        host: Range<u64>,
        guest: u64,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<Option<Region>, OnePassError> {
        let start = (host.start - self.window.position()) as usize; // plain data never waits for its end
        let range = start..chunk.len().min(start + (host.end - host.start) as usize);
        let len = range.len() as u64;
        if len > 0 {
            self.vacate(guest, len, output)?;
            output.plain(range, guest)?;
        }
        self.last_plain = Some((host.start, guest));
        self.pass(host.start + len, Task::Plain(guest));
        let rest = Region { host: host.start + len..host.end, task: Task::Plain(guest + len) };
        Ok((!rest.host.is_empty()).then_some(rest))
    }

    fn perform_compressed(
        &mut self,
        host: Range<u64>,
        guest: u64,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        self.vacate(guest, self.layout.cluster_size(), output)?;
        let bytes = self.window.bytes(&host, chunk);
        if self.tables_left > 0 {
            self.parking.keep_tail(&host, bytes.as_slice(chunk));
        }
        match bytes {
            Bytes::InChunk(range) => output.compressed(range, guest)?,
            Bytes::Owned(bytes) => output.compressed_owned(bytes, guest)?,
        }
        self.cursor = self.cursor.max(host.end);
        Ok(())
    }

    /// Parks, as far as they have come, the bytes between `cursor` and `until`, where the next known thing begins.
    fn pass_unknown(
        &mut self,
        until: u64,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let end = self.window.end(chunk);
        if self.cursor >= until.min(end) {
            return Ok(());
        }
        if self.tables_left == 0 {
            self.cursor = until.min(end);
            return Ok(());
        }
        self.parking.park_tail(self.cursor, output)?;
        while let Some(unknown) = self.unknown_range(until, end) {
            if !self.unallocated.contains(&unknown.start) {
                let bytes = self.window.bytes(&unknown, chunk);
                let home = self.presumed_home(unknown.start);
                self.parking.park(unknown.start, bytes.as_slice(chunk), home, output)?;
                self.check_index(0)?;
            }
            (self.cursor, self.solid, self.before) = (unknown.end, unknown.end, None);
        }
        Ok(())
    }

    /// The next unknown bytes that are parked together: up to `until`, as far as they have come by `end`. Clusters are
    /// waited for, so that zeroes are seen, and clusters parked, as a whole. `None`: there is nothing (yet).
    fn unknown_range(&self, until: u64, end: u64) -> Option<Range<u64>> {
        let cluster_size = self.layout.park_alignment();
        let cluster_end = (self.cursor / cluster_size + 1) * cluster_size;
        let first_end = until.min(cluster_end);
        if self.cursor >= until || first_end > end {
            return None;
        }
        // What was carried over is copied, hence not more of it than there has to be.
        if self.cursor < self.window.position() || self.unallocated.contains(&self.cursor) {
            return Some(self.cursor..first_end);
        }
        let range_end = if until <= end { until } else { end / cluster_size * cluster_size };
        let next_block = self.unallocated.range(cluster_end..).next();
        let range_end = next_block.map_or(range_end, |&block| range_end.min(block));
        Some(self.cursor..first_end.max(range_end.min(cluster_end - cluster_size + PARK_MAX)))
    }

    /// Where the unknown cluster at `host` belongs, if the guest's data continues in the file as it began.
    fn presumed_home(&self, host: u64) -> Option<u64> {
        let (last_host, last_guest) = self.last_plain?;
        (host - last_host).checked_add(last_guest).filter(|&home| home < self.layout.virtual_size())
    }

    /// Everything up to `end` belongs to `task`, or to what came before it.
    fn pass(&mut self, end: u64, task: Task) {
        (self.cursor, self.solid, self.before) = (self.cursor.max(end), end, Some(task));
    }

    /// Compressed clusters share sectors. Nothing else may overlap.
    fn check_overlap(&self, item: &Region) -> Result<(), OnePassError> {
        let at = item.host.start;
        if at >= self.cursor {
            return Ok(());
        }
        let with = if at >= self.solid { Some(Task::Compressed(0)) } else { self.before };
        match (item.task, with) {
            (Task::Compressed(_), Some(Task::Compressed(_))) => Ok(()),
            (task, Some(with)) if task.is_data() && with.is_data() => Err(used_twice(at)),
            (task, with) => {
                let names = self.layout.names();
                let with = with.map_or("header", |task| task.name(names));
                Err(Error::Overlap { what: task.name(names), at, with }.into())
            }
        }
    }

    /// Prepares a guest range for its data.
    pub(super) fn vacate(
        &mut self,
        at: u64,
        len: u64,
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        Ok(self.parking.vacate(at..at + len, output)?)
    }
}

/// The bytes at `at` have been taken for something else already, or belong to two clusters.
pub(super) fn used_twice(at: u64) -> OnePassError {
    let because = format!("byte {at} of the file is used more than once");
    OnePassError::NeedsRandomAccess { because }
}

impl From<ParkError> for OnePassError {
    fn from(error: ParkError) -> Self {
        match error {
            ParkError::Output(error) => Self::Output(error),
            ParkError::Full => Self::ParkingFull,
        }
    }
}
