//! The regions of the file that are expected: what is known of the bytes to come.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::index::{Names, Piece, PieceKind};

/// A range of the file and what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) host: Range<u64>,
    pub(super) task: Task,
}

/// Content of a [`Region`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Entries of the root.
    Root,
    /// The table of that index.
    Table(u32),
    /// Neither data nor a table, with its name for messages.
    Reserved(&'static str),
    /// Guest data at this address.
    Plain(u64),
    /// A compressed cluster at this guest address.
    Compressed(u64),
}

impl Task {
    pub(super) fn name(self, names: &Names) -> &'static str {
        match self {
            Self::Root => names.root,
            Self::Table(_) => names.table,
            Self::Reserved(name) => name,
            Self::Plain(_) => names.cluster,
            Self::Compressed(_) => names.compressed,
        }
    }

    pub(super) fn is_data(self) -> bool {
        matches!(self, Self::Plain(_) | Self::Compressed(_))
    }
}

/// All that is known of the bytes to come, in the order of the file.
///
/// There may be millions of clusters to come, so each run of them costs 16 bytes and no tree: every table leaves one
/// sorted batch of runs, consumed from its end, and a heap finds the batch that is next.
#[derive(Debug, Default)]
pub(super) struct ExpectedRegions {
    /// Offsets and indices, descending.
    tables: Vec<(u64, u32)>,
    /// The root and reserved ranges: of any length, and few. Descending.
    long: Vec<Region>,
    /// Bytes of a table, and of the last.
    table_len: u64,
    last_table: (u32, u64),
    batches: BinaryHeap<Batch>,
    runs: usize,
}

/// The runs of one table: neighbours on the disk, hence small numbers.
#[derive(Debug)]
pub(super) struct Batch {
    /// The table's part of the disk.
    guest: Range<u64>,
    /// Bytes in which the guest address of a plain run is counted.
    unit: u64,
    /// Descending in the heap, never empty.
    runs: Vec<Run>,
}

/// A run of clusters, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Offset in the file, and in the uppermost bit whether it is compressed. Offsets have at most 62 bits.
    host: u64,
    /// Guest address, in units from that of the table.
    index: u32,
    /// Units; sectors, if it is compressed.
    len: u32,
}

const COMPRESSED: u64 = 1 << 63;
/// What a batch takes besides its runs, in entries.
const BATCH_ENTRIES: usize = size_of::<Batch>().div_ceil(size_of::<Run>());
const SECTOR: u64 = 512;

impl ExpectedRegions {
    /// Memory that a run of clusters, or a table, takes.
    pub(super) const ENTRY_BYTES: usize = size_of::<Run>();

    /// Tables are `table_len` bytes long, but for the one of index `last_table.0`.
    pub(super) fn new(table_len: u64, last_table: (u32, u64)) -> Self {
        Self { table_len, last_table, ..Self::default() }
    }

    /// How many entries of [`ENTRY_BYTES`](Self::ENTRY_BYTES) there are.
    pub(super) fn len(&self) -> usize {
        self.tables.len() + self.runs + self.batches.len() * BATCH_ENTRIES
    }

    /// Adds the root or a reserved range.
    pub(super) fn add_long(&mut self, item: Region) {
        self.long.push(item);
        self.long.sort_unstable_by_key(|item| std::cmp::Reverse(item.host.start));
    }

    /// Adds all tables that are still to come.
    pub(super) fn add_tables(&mut self, tables: impl Iterator<Item = (u64, u32)>) {
        self.tables.extend(tables);
        self.tables.sort_unstable_by_key(|&(host, _)| std::cmp::Reverse(host));
        self.tables.shrink_to_fit();
    }

    pub(super) fn add(&mut self, mut batch: Batch) {
        if !batch.runs.is_empty() {
            batch.runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.offset()));
            batch.runs.shrink_to_fit();
            self.runs += batch.runs.len();
            self.batches.push(batch);
        }
    }

    /// Where the next item begins.
    pub(super) fn next_start(&self) -> Option<u64> {
        [
            self.long.last().map(|item| item.host.start),
            self.tables.last().map(|&(host, _)| host),
            self.batches.peek().map(Batch::next_start),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes the next item off, tables first where several begin at the same byte.
    pub(super) fn pop(&mut self) -> Option<Region> {
        let start = self.next_start()?;
        if self.long.last().is_some_and(|item| item.host.start == start) {
            return self.long.pop();
        }
        if self.tables.last().is_some_and(|&(host, _)| host == start) {
            let (host, index) = self.tables.pop()?;
            let len = if index == self.last_table.0 { self.last_table.1 } else { self.table_len };
            return Some(Region { host: host..host + len, task: Task::Table(index) });
        }
        let mut batch = self.batches.peek_mut()?;
        let run = batch.runs.pop()?;
        let item = batch.item(run);
        if batch.runs.is_empty() {
            std::collections::binary_heap::PeekMut::pop(batch);
        }
        self.runs -= 1;
        Some(item)
    }
}

impl Batch {
    /// For the table that maps the part `guest` of the disk, in plain pieces of whole `unit`s.
    pub(super) fn new(guest: Range<u64>, unit: u64) -> Self {
        Self { guest, unit, runs: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn push(&mut self, piece: &Piece) {
        let index = ((piece.guest - self.guest.start) / self.unit) as u32; // a table has at most 2^22 units
        self.runs.push(match piece.kind {
            // The disk's last unit may be cut; it is cut again when it is returned.
            PieceKind::Plain => {
                Run { host: piece.host, index, len: piece.host_len.div_ceil(self.unit) as u32 }
            }
            PieceKind::Compressed => {
                let sectors = (piece.host + piece.host_len).div_ceil(SECTOR) - piece.host / SECTOR;
                Run { host: piece.host | COMPRESSED, index, len: sectors as u32 }
            }
        });
    }

    fn next_start(&self) -> u64 {
        self.runs.last().map_or(u64::MAX, Run::offset)
    }

    fn item(&self, run: Run) -> Region {
        let (start, guest) = (run.offset(), self.guest.start + u64::from(run.index) * self.unit);
        if run.host & COMPRESSED != 0 {
            let end = (start / SECTOR + u64::from(run.len)) * SECTOR;
            Region { host: start..end, task: Task::Compressed(guest) }
        } else {
            let len = (u64::from(run.len) * self.unit).min(self.guest.end - guest);
            Region { host: start..start + len, task: Task::Plain(guest) }
        }
    }
}

impl Run {
    fn offset(&self) -> u64 {
        self.host & !COMPRESSED
    }
}

/// The batch whose next run comes first is the greatest: the heap is a max-heap.
impl Ord for Batch {
    fn cmp(&self, other: &Self) -> Ordering {
        other.next_start().cmp(&self.next_start())
    }
}

impl PartialOrd for Batch {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Batch {}
