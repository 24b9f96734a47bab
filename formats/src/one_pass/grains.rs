//! A stream of grains that contain their guest address: a vmdk that can be read in order.
//!
//! ```text
//!  │ header │ descriptor │ (directory, tables) │ marker, grain │ marker, grain │ … │ (marker, table) … (marker, directory) │ …
//! ```
//!
//! Nothing has to be parked, and no table is needed. But a reader that goes by the tables must see the same disk. So the
//! tables, which come before all grains or behind them, are held against the grains, without being kept: both are summed
//! up, each grain's place in the file weighted by its number on the disk. Where the sums differ (a grain was written
//! twice, for example), or the file is no stream at all, the tables decide: [`OnePassError::NeedsRandomAccess`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::output::Output;
use super::window::{Bytes, Window};
use super::{Limits, OnePassError};
use crate::Error;
use crate::blocks::SECTOR;
use crate::bytes::le_u32;
use crate::cluster::GRAIN_HEADER;
use crate::index::Layout;
use crate::vmdk::{Markers, header};

const WHAT: &str = "vmdk";
/// Memory that the sum of a table takes, about.
const SUM_BYTES: usize = 48;

/// Reads markers, and what follows each.
#[derive(Debug)]
pub(super) struct Grains {
    layout: Arc<dyn Layout>,
    markers: Markers,
    limits: Limits,
    window: Window,
    /// Where the next thing begins.
    at: u64,
    next: Next,
    /// Of the tables that stand before the grains: places and numbers, the next one last.
    tables_before: Vec<(u64, u64)>,
    /// Of the tables behind the grains: sums, by place.
    tables_behind: BTreeMap<u64, u64>,
    /// Where the directory was, behind the grains.
    directory: Option<u64>,
    seen: u64,
    expected: u64,
}

/// What begins at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    DirectoryBefore,
    TableBefore(u64),
    Marker,
    /// The grain of that address, of so many bytes with its marker.
    Grain(u64, u64),
    Table,
    Directory,
    Footer,
    /// Nothing of use.
    End,
}

impl Grains {
    pub(super) fn new(layout: Arc<dyn Layout>, markers: Markers, limits: Limits) -> Self {
        let (at, next) = match markers.directory {
            Some(at) => (at, Next::DirectoryBefore),
            None => (markers.start, Next::Marker),
        };
        Self {
            layout,
            markers,
            limits,
            window: Window::default(),
            at,
            next,
            tables_before: Vec::new(),
            tables_behind: BTreeMap::new(),
            directory: None,
            seen: 0,
            expected: 0,
        }
    }

    pub(super) fn supply(
        &mut self,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let end = self.window.end(chunk);
        while self.next != Next::End {
            let range = self.at..self.at + self.needed()?;
            if range.end > end {
                break;
            }
            let bytes = self.window.bytes(&range, chunk);
            match self.take(range, bytes, chunk, output) {
                // Lost between the grains. The tables may know better.
                Err(OnePassError::Image(error)) => return Err(other_order(&error.to_string())),
                taken => taken?,
            }
        }
        let needed = if self.next == Next::End { u64::MAX } else { self.at };
        self.window.advance(chunk, needed);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), OnePassError> {
        let file_len = self.window.position();
        // Where the directory stands before the grains, some writers end with the last of them.
        let in_tables = matches!(self.next, Next::DirectoryBefore | Next::TableBefore(_));
        if in_tables || self.next != Next::End && self.markers.directory.is_none() {
            return Err(Error::Truncated { what: WHAT, at: file_len }.into());
        }
        if self.seen != self.expected {
            return Err(other_order("its tables do not name the grains that came"));
        }
        Ok(())
    }

    /// Bytes of what begins at `at`.
    fn needed(&self) -> Result<u64, OnePassError> {
        let directory_len = self.layout.table_count() * 4;
        if directory_len > self.limits.index_bytes as u64 {
            return Err(other_order("its grain directory is too long to be kept in memory"));
        }
        Ok(match self.next {
            Next::DirectoryBefore | Next::Directory => directory_len,
            Next::TableBefore(_) | Next::Table => self.markers.per_table * 4,
            Next::Marker => GRAIN_HEADER as u64 + 4,
            Next::Grain(_, len) => len,
            Next::Footer => SECTOR,
            Next::End => 0,
        })
    }

    fn take(
        &mut self,
        range: Range<u64>,
        bytes: Bytes,
        chunk: &[u8],
        output: &mut dyn Output,
    ) -> Result<(), OnePassError> {
        let slice = bytes.as_slice(chunk);
        match self.next {
            Next::DirectoryBefore => {
                if range.end > self.markers.start {
                    return Err(other_order("its grain directory is not where a stream has it"));
                }
                for (number, place) in (0..).zip(sectors(slice)).filter(|(_, place)| *place != 0) {
                    if place < range.end || place + self.table_len() > self.markers.start {
                        return Err(other_order("a grain table is not where a stream has it"));
                    }
                    self.tables_before.push((place, number));
                }
                self.check_index()?;
                self.tables_before.sort_unstable_by_key(|&(place, _)| std::cmp::Reverse(place));
                self.next_table_before();
            }
            Next::TableBefore(number) => {
                self.expected = add(self.expected, multiply(sum(slice), self.weight(number)));
                self.next_table_before();
            }
            Next::Marker => self.next = self.read_marker(range.start, slice)?,
            Next::Grain(guest, _) => {
                let weight = power(guest / self.layout.cluster_size());
                self.seen = add(self.seen, multiply(range.start / SECTOR, weight));
                match bytes {
                    Bytes::InChunk(range) => output.compressed(range, guest)?,
                    Bytes::Owned(bytes) => output.compressed_owned(bytes, guest)?,
                }
                self.next_marker(range.end);
            }
            Next::Table => {
                self.tables_behind.insert(range.start, sum(slice));
                self.check_index()?;
                self.next_marker(range.end);
            }
            Next::Directory => {
                self.expected = 0;
                for (number, place) in (0..).zip(sectors(slice)).filter(|(_, place)| *place != 0) {
                    let Some(&sum) = self.tables_behind.get(&place) else {
                        return Err(other_order("a grain table is not where a stream has it"));
                    };
                    self.expected = add(self.expected, multiply(sum, self.weight(number)));
                }
                self.directory = Some(range.start);
                self.next_marker(range.end);
            }
            Next::Footer => {
                let last = header::Header::parse(slice, range.start)?;
                if self.directory.is_none() || last.directory != self.directory {
                    return Err(other_order("its grain directory is not where a stream has it"));
                }
                self.next_marker(range.end);
            }
            Next::End => {}
        }
        Ok(())
    }

    /// What follows the marker at `at`, and `self.at` is set to where that begins.
    fn read_marker(&mut self, at: u64, marker: &[u8]) -> Result<Next, OnePassError> {
        let wrong = |because| Error::Corrupt { what: WHAT, at, because };
        let (value, len, kind) = header::marker(marker);
        if len > 0 {
            let grain = self.layout.cluster_size();
            let guest = value
                .checked_mul(SECTOR)
                .filter(|guest| guest.is_multiple_of(grain) && *guest < self.layout.virtual_size());
            let guest = guest.ok_or_else(|| wrong("a grain belongs outside the disk"))?;
            if u64::from(len) > 2 * grain {
                return Err(wrong("a grain is too long").into());
            }
            return Ok(Next::Grain(guest, u64::from(len) + GRAIN_HEADER as u64));
        }
        self.at = at + SECTOR;
        let expects = |bytes: u64| value == bytes.div_ceil(SECTOR);
        match kind {
            header::END if value == 0 => {
                let complete = self.markers.directory.is_some() || self.directory.is_some();
                complete.then_some(Next::End).ok_or_else(|| wrong("it has no directory").into())
            }
            header::TABLE if expects(self.table_len()) => Ok(Next::Table),
            header::DIRECTORY if expects(self.layout.table_count() * 4) => Ok(Next::Directory),
            header::FOOTER if value == 1 => Ok(Next::Footer),
            _ => Err(wrong("there is no marker of a known kind").into()),
        }
    }

    fn next_table_before(&mut self) {
        (self.at, self.next) = match self.tables_before.pop() {
            Some((place, number)) => (place, Next::TableBefore(number)),
            None => (self.markers.start, Next::Marker),
        };
    }

    /// The next marker is in the first sector from `end` on.
    fn next_marker(&mut self, end: u64) {
        (self.at, self.next) = (end.next_multiple_of(SECTOR), Next::Marker);
    }

    fn table_len(&self) -> u64 {
        self.markers.per_table * 4
    }

    /// Of a table's first grain.
    fn weight(&self, number: u64) -> u64 {
        power(number * self.markers.per_table)
    }

    fn check_index(&self) -> Result<(), OnePassError> {
        let used = self.tables_before.len() * 16 + self.tables_behind.len() * SUM_BYTES;
        if used > self.limits.index_bytes {
            return Err(other_order("its grain tables are too many to be remembered"));
        }
        Ok(())
    }
}

fn other_order(because: &str) -> OnePassError {
    OnePassError::NeedsRandomAccess { because: because.into() }
}

/// The places that a directory names, in bytes.
fn sectors(directory: &[u8]) -> impl Iterator<Item = u64> {
    directory.chunks_exact(4).map(|entry| u64::from(le_u32(entry, 0)) * SECTOR)
}

/// Sums are modulo this, 2^61 - 1, so that no two different tables are likely to have one sum.
const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0b5a_d4ec_eda1_ce2a;

/// A table's entries, weighted by their places in it. Those that name no grain do not count.
fn sum(table: &[u8]) -> u64 {
    let entries = table.chunks_exact(4).map(|entry| u64::from(le_u32(entry, 0)));
    let terms = (0..).zip(entries).filter(|(_, entry)| *entry > 1);
    terms.fold(0, |sum, (place, entry)| add(sum, multiply(entry, power(place))))
}

fn power(mut exponent: u64) -> u64 {
    let (mut power, mut square) = (1, BASE);
    while exponent > 0 {
        if exponent & 1 != 0 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    power
}

fn add(left: u64, right: u64) -> u64 {
    (left + right) % PRIME // both are below 2^61
}

fn multiply(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(PRIME)) as u64
}
