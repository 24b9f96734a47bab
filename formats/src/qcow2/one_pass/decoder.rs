//! The decoder itself: every byte of the file is data, a table, or unknown.

use std::ops::Range;

use super::agenda::{Agenda, Batch, Item, Task};
use super::output::Output;
use super::parking::{self, Claimed, ParkError, Parking};
use super::{Limits, OnePassError};
use crate::Error;
use crate::bytes::be_u64;
use crate::qcow2::header::Header;
use crate::qcow2::l1;
use crate::qcow2::pieces::{Piece, PieceKind, Pieces};

/// Decodes an image whose bytes come in order and only once.
#[derive(Debug)]
pub struct OnePass {
    header: Header,
    limits: Limits,
    /// So many bytes were supplied before the present chunk.
    position: u64,
    /// Bytes before this have been handed over, understood, parked or dropped.
    cursor: u64,
    /// The part of the file before `cursor` that cannot begin anything any more. Only compressed clusters lie behind it,
    /// which may overlap.
    solid: u64,
    /// What ends at `solid`, if it is known.
    before: Option<Task>,
    /// The last of the bytes before `position`: those that are still needed.
    carry: Vec<u8>,
    /// Begun, and waiting for bytes.
    current: Option<Item>,
    agenda: Agenda,
    parking: Parking,
    /// Where the guest's last plain data began, in the file and on the disk.
    last_plain: Option<(u64, u64)>,
    /// Tables not read yet, the L1 table included. At 0 the agenda is complete, and what is not on it of no use.
    tables_left: usize,
    /// Offsets and indices of L2 tables, while the L1 table is being read.
    l2_tables: Vec<(u64, u32)>,
    /// Offsets, ascending once the table is complete. Nobody's data, unless an L2 table says otherwise: no need to park.
    refcount_blocks: Vec<u64>,
}

/// Bits 9 to 63 of an entry of the reference count table.
const REFCOUNT_BLOCK_OFFSET: u64 = !0x1ff;

/// Where bytes of the file are.
enum Bytes {
    InChunk(Range<usize>),
    Owned(Vec<u8>),
}

impl Bytes {
    fn as_slice<'a>(&'a self, chunk: &'a [u8]) -> &'a [u8] {
        match self {
            Self::InChunk(range) => &chunk[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

impl OnePass {
    /// Begins at the file's first byte. The header has been parsed from a copy of it.
    pub fn new(header: Header, limits: Limits) -> Self {
        let cluster_size = header.cluster_size();
        let mut agenda = Agenda::new(cluster_size);
        agenda.add_long_table(Item { host: header.refcount_table(), task: Task::RefcountTable });
        let has_tables = header.l2_tables() > 0;
        if has_tables {
            agenda.add_long_table(Item { host: header.l1_range(), task: Task::L1 });
        }
        Self {
            parking: Parking::new(header.virtual_size(), cluster_size, limits.parked_bytes),
            limits,
            position: 0,
            cursor: cluster_size,
            solid: cluster_size,
            before: None,
            carry: Vec::new(),
            current: None,
            last_plain: None,
            agenda,
            tables_left: usize::from(has_tables),
            l2_tables: Vec::new(),
            refcount_blocks: Vec::new(),
            header,
        }
    }

    /// Takes the next bytes of the file, any number of them, and hands over to `output` what they mean.
    ///
    /// # Errors
    /// See [`OnePassError`]. Nothing may be supplied after one.
    pub fn supply(&mut self, chunk: &[u8], output: &mut dyn Output) -> Result<(), OnePassError> {
        let end = self.position + chunk.len() as u64;
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
            let next_start = self.agenda.next_start().unwrap_or(u64::MAX);
            self.pass_unknown(next_start, chunk, output)?;
        }
        self.carry_over(chunk);
        self.position = end;
        Ok(())
    }

    /// The file has ended. Hands over what is left, and makes zero again whatever is still parked in the target.
    ///
    /// # Errors
    /// See [`OnePassError`]; in particular when the file ended before all of the guest's data had come.
    pub fn finish(mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        while let Some(item) = self.next_item(u64::MAX) {
            match item.task {
                // Its last sector need not be whole.
                Task::Compressed(guest) if self.position >= parking::tail_start(&item.host) => {
                    let bytes = self.gather(&(item.host.start..self.position), &[]);
                    self.vacate(guest, self.header.cluster_size(), output)?;
                    output.compressed_owned(bytes, guest)?;
                }
                task => {
                    let (what, at) = (task.name(), item.host.start);
                    return Err(Error::OutsideFile { what, at, file_len: self.position }.into());
                }
            }
        }
        Ok(self.parking.abandon(output)?)
    }

    /// What is next, if it begins before `end`.
    fn next_item(&mut self, end: u64) -> Option<Item> {
        if self.current.is_some() {
            return self.current.take();
        }
        self.agenda.next_start().filter(|&start| start < end).and_then(|_| self.agenda.pop())
    }

    /// Does what can be done of `item` with the bytes so far, and returns what is left of it.
    fn perform(
        &mut self,
        item: Item,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<Option<Item>, OnePassError> {
        let end = self.position + chunk.len() as u64;
        match item.task {
            Task::Plain(guest) => return self.perform_plain(item.host, guest, chunk, output),
            Task::Compressed(_) | Task::L2(_) if item.host.end > end => return Ok(Some(item)),
            Task::Compressed(guest) => self.perform_compressed(item.host, guest, chunk, output)?,
            Task::L2(index) => {
                let table = self.bytes(&item.host, chunk);
                self.pass(item.host.end, item.task);
                self.read_l2(index, item.host.start, table.as_slice(chunk), output)?;
                self.settle_if_complete(output)?;
            }
            Task::L1 | Task::RefcountTable => {
                let whole_entries = (item.host.end.min(end) - item.host.start) / 8 * 8;
                let available = item.host.start..item.host.start + whole_entries;
                let bytes = self.bytes(&available, chunk);
                self.pass(available.end, item.task);
                let entries = bytes.as_slice(chunk).chunks_exact(8).map(|entry| be_u64(entry, 0));
                let is_last = available.end == item.host.end;
                if item.task == Task::L1 {
                    self.read_l1(available.start, entries)?;
                    if is_last {
                        self.complete_l1(output)?;
                    }
                } else {
                    self.read_refcount_table(entries, is_last);
                }
                return Ok((!is_last)
                    .then_some(Item { host: available.end..item.host.end, task: item.task }));
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
    ) -> Result<Option<Item>, OnePassError> {
        let start = (host.start - self.position) as usize; // plain data never waits for its end
        let range = start..chunk.len().min(start + (host.end - host.start) as usize);
        let len = range.len() as u64;
        if len > 0 {
            self.vacate(guest, len, output)?;
            output.plain(range, guest)?;
        }
        self.last_plain = Some((host.start, guest));
        self.pass(host.start + len, Task::Plain(guest));
        let rest = Item { host: host.start + len..host.end, task: Task::Plain(guest + len) };
        Ok((!rest.host.is_empty()).then_some(rest))
    }

    fn perform_compressed(
        &mut self,
        host: Range<u64>,
        guest: u64,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        self.vacate(guest, self.header.cluster_size(), output)?;
        let bytes = self.bytes(&host, chunk);
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
        let end = self.position + chunk.len() as u64;
        if self.cursor >= until.min(end) {
            return Ok(());
        }
        if self.tables_left == 0 {
            self.cursor = until.min(end);
            return Ok(());
        }
        self.parking.park_tail(self.cursor, output)?;
        let cluster_size = self.header.cluster_size();
        while self.cursor < until {
            let cluster = self.cursor / cluster_size * cluster_size;
            let unknown = self.cursor..until.min(cluster + cluster_size);
            if unknown.end > end {
                break; // so that zeroes are seen, and clusters parked, as a whole
            }
            if self.refcount_blocks.binary_search(&cluster).is_err() {
                let bytes = self.bytes(&unknown, chunk);
                let home = self.presumed_home(unknown.start);
                self.parking.park(unknown.start, bytes.as_slice(chunk), home, output)?;
                self.check_index(0)?;
            }
            (self.cursor, self.solid, self.before) = (unknown.end, unknown.end, None);
        }
        Ok(())
    }

    /// Where the unknown cluster at `host` belongs, if the guest's data goes on in the file as it began.
    fn presumed_home(&self, host: u64) -> Option<u64> {
        let (last_host, last_guest) = self.last_plain?;
        (host - last_host).checked_add(last_guest).filter(|&home| home < self.header.virtual_size())
    }

    /// Everything up to `end` belongs to `task`, or to what came before it.
    fn pass(&mut self, end: u64, task: Task) {
        (self.cursor, self.solid, self.before) = (self.cursor.max(end), end, Some(task));
    }

    /// Compressed clusters share sectors. Nothing else may overlap.
    fn check_overlap(&self, item: &Item) -> Result<(), OnePassError> {
        let at = item.host.start;
        if at >= self.cursor {
            return Ok(());
        }
        let with = if at >= self.solid { Some(Task::Compressed(0)) } else { self.before };
        match (item.task, with) {
            (Task::Compressed(_), Some(Task::Compressed(_))) => Ok(()),
            (task, Some(with)) if task.is_data() && with.is_data() => Err(used_twice(at)),
            (task, with) => {
                let with = with.map_or("header", Task::name);
                Err(Error::Overlap { what: task.name(), at, with }.into())
            }
        }
    }

    /// Takes entries of the L1 table, the first of them found at byte `at`.
    fn read_l1(&mut self, at: u64, entries: impl Iterator<Item = u64>) -> Result<(), OnePassError> {
        for (at, entry) in (at..).step_by(8).zip(entries) {
            if let Some(table) = l1::l2_offset(&self.header, entry, at)? {
                let index = (at - self.header.l1_range().start) / 8;
                self.l2_tables.push((table, index as u32)); // the table has at most 2^22 entries
                self.check_index(0)?;
            }
        }
        Ok(())
    }

    /// The L1 table has been read: L2 tables are still to come, or are parked.
    fn complete_l1(&mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        let mut tables = std::mem::take(&mut self.l2_tables);
        tables.sort_unstable();
        if let Some(pair) = tables.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (what, with) = ("L2 table", "another L2 table");
            return Err(Error::Overlap { what, at: pair[0].0, with }.into());
        }
        self.tables_left += tables.len();
        self.tables_left -= 1;
        let passed = tables.partition_point(|&(table, _)| table < self.cursor);
        self.agenda.add_l2_tables(tables.drain(passed..));
        for (at, index) in tables {
            let range = at..at + self.header.cluster_size();
            let table = self.parking.claim_all(&range, output)?;
            if (table.len() as u64) < self.header.cluster_size() {
                return Err(used_twice(at));
            }
            self.read_l2(index, at, &table, output)?;
        }
        self.settle_if_complete(output)
    }

    /// Takes an L2 table: what it maps is still to come, or parked.
    fn read_l2(
        &mut self,
        index: u32,
        at: u64,
        table: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let header = self.header.clone();
        let guest = u64::from(index) * header.l2_coverage();
        let guest_end = header.virtual_size().min(guest + header.l2_coverage());
        let mut batch = Batch::new(guest..guest_end, header.plain_unit());
        for piece in Pieces::new(&header, u64::from(index), at, table)? {
            let piece = piece?;
            let host = piece.host_range();
            if host.start < at + header.cluster_size() && at < host.end {
                let (what, with) = (piece.name(), "L2 table");
                return Err(Error::Overlap { what, at: host.start, with }.into());
            }
            if host.start < self.cursor {
                self.unpark(&piece, output)?;
            } else {
                batch.push(&piece);
                self.check_index(batch.len())?;
            }
        }
        self.agenda.add(batch);
        self.tables_left -= 1;
        Ok(())
    }

    /// Hands over what has passed before its table was known.
    fn unpark(&mut self, piece: &Piece, output: &mut dyn Output) -> Result<(), OnePassError> {
        let (mut host, mut guest) = (piece.host_range(), piece.guest);
        if piece.kind == PieceKind::Compressed {
            let cluster = self.parking.claim_compressed(&host, output)?;
            let cluster = cluster.ok_or_else(|| used_twice(host.start))?;
            self.vacate(guest, self.header.cluster_size(), output)?;
            return Ok(output.compressed_owned(cluster, guest)?);
        }
        while !host.is_empty() {
            let claimed = self.parking.claim(&host, Some(guest), output)?;
            let claimed = claimed.ok_or_else(|| used_twice(host.start))?;
            let len = claimed.len();
            match claimed {
                Claimed::Zeroes(_) => {}
                Claimed::InPlace(len) => output.keep(guest, len)?,
                Claimed::Bytes(bytes) => {
                    self.vacate(guest, len, output)?;
                    output.plain_owned(bytes, guest)?;
                }
            }
            host.start += len;
            guest += len;
        }
        Ok(())
    }

    /// Takes entries of the reference count table: there is no data in the blocks it names.
    fn read_refcount_table(&mut self, entries: impl Iterator<Item = u64>, is_last: bool) {
        // Whatever is not remembered is parked needlessly, and nothing worse.
        let room = (self.limits.index_bytes / 64).saturating_sub(self.refcount_blocks.len());
        let blocks = entries.map(|entry| entry & REFCOUNT_BLOCK_OFFSET);
        let blocks = blocks.filter(|&block| (1..1 << 62).contains(&block));
        self.refcount_blocks.extend(blocks.take(room));
        if is_last {
            self.refcount_blocks.sort_unstable();
            for &block in &self.refcount_blocks {
                self.parking.discard(&(block..block + self.header.cluster_size()));
            }
        }
    }

    /// Once the last table has been read, what is parked belongs to no address of the guest.
    fn settle_if_complete(&mut self, output: &mut dyn Output) -> Result<(), OnePassError> {
        if self.tables_left == 0 {
            self.parking.abandon(output)?;
            self.refcount_blocks = Vec::new();
        }
        Ok(())
    }

    /// Makes room for data of the guest.
    fn vacate(&mut self, at: u64, len: u64, output: &mut dyn Output) -> Result<(), OnePassError> {
        Ok(self.parking.vacate(at..at + len, output)?)
    }

    /// Refuses to remember more than was agreed, with `more` runs about to be added to the agenda.
    fn check_index(&self, more: usize) -> Result<(), OnePassError> {
        let to_come = (self.agenda.len() + self.l2_tables.len() + more) * Agenda::ENTRY_BYTES;
        let parked = self.parking.index_bytes();
        if to_come + parked + self.refcount_blocks.len() * 8 > self.limits.index_bytes {
            let because = format!(
                "its clusters are too scattered to be remembered in {} bytes",
                self.limits.index_bytes
            );
            return Err(OnePassError::NeedsRandomAccess { because });
        }
        Ok(())
    }

    /// The bytes `range` of the file, which have come.
    fn bytes(&self, range: &Range<u64>, chunk: &[u8]) -> Bytes {
        match range.start.checked_sub(self.position) {
            Some(start) => {
                let start = start as usize;
                Bytes::InChunk(start..start + (range.end - range.start) as usize)
            }
            None => Bytes::Owned(self.gather(range, chunk)),
        }
    }

    /// The bytes `range` of the file, of which at least the first was carried over.
    fn gather(&self, range: &Range<u64>, chunk: &[u8]) -> Vec<u8> {
        let carry_start = self.position - self.carry.len() as u64;
        let carried = (range.start - carry_start) as usize
            ..(range.end.min(self.position) - carry_start) as usize;
        let in_chunk = range.end.saturating_sub(self.position) as usize;
        [&self.carry[carried], &chunk[..in_chunk]].concat()
    }

    /// Keeps the end of `chunk`, if it is the beginning of something.
    fn carry_over(&mut self, chunk: &[u8]) {
        let end = self.position + chunk.len() as u64;
        let needed = match &self.current {
            Some(item) => item.host.start.min(end),
            None if self.tables_left > 0 => self.cursor.min(end),
            None => end,
        };
        match needed.checked_sub(self.position) {
            Some(start) => {
                self.carry.clear();
                self.carry.extend(&chunk[start as usize..]);
            }
            None => {
                let carry_start = self.position - self.carry.len() as u64;
                self.carry.drain(..(needed - carry_start) as usize);
                self.carry.extend(chunk);
            }
        }
    }
}

/// The bytes at `at` have been taken for something else already, or belong to two clusters.
fn used_twice(at: u64) -> OnePassError {
    let because = format!("byte {at} of the file is used more than once");
    OnePassError::NeedsRandomAccess { because }
}

impl From<ParkError> for OnePassError {
    fn from(error: ParkError) -> Self {
        match error {
            ParkError::Output(error) => Self::Output(error),
            ParkError::Full => Self::NeedsRandomAccess {
                because: "more clusters precede their tables than memory and disk have room for"
                    .into(),
            },
        }
    }
}
