//! The contents of tables: pieces of the file that hold the guest's data.

use std::ops::Range;

use super::Names;
use crate::Error;

/// A range of the guest's disk and where its bytes are in the file. What lies in no piece is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Guest address of the first byte.
    pub guest: u64,
    /// Its length. It ends at the disk's end at the latest, even where the cluster does not.
    pub guest_len: u64,
    /// Where its bytes begin in the file.
    pub host: u64,
    /// How many there are.
    pub host_len: u64,
    /// What they are.
    pub kind: PieceKind,
}

/// What the bytes of a [`Piece`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// The guest's own: `host_len` equals `guest_len`.
    Plain,
    /// One compressed cluster, and then bytes that do not belong to it.
    Compressed,
}

impl Piece {
    /// Where the file has it.
    pub fn host_range(&self) -> Range<u64> {
        self.host..self.host + self.host_len
    }

    pub(crate) fn name(&self, names: &Names) -> &'static str {
        match self.kind {
            PieceKind::Plain => names.cluster,
            PieceKind::Compressed => names.compressed,
        }
    }

    /// Appends `next`, if both are plain and are adjacent on the disk and in the file.
    fn merge(&mut self, next: &Self) -> bool {
        let joins = self.kind == PieceKind::Plain
            && next.kind == PieceKind::Plain
            && self.guest + self.guest_len == next.guest
            && self.host + self.host_len == next.host;
        if joins {
            self.guest_len += next.guest_len;
            self.host_len += next.host_len;
        }
        joins
    }
}

/// Pieces with neighbours merged. Ends after the first error.
#[derive(Debug)]
pub(crate) struct Merged<I> {
    unmerged: Option<I>,
    /// Not returned yet, since the next may join it.
    last: Option<Piece>,
}

impl<I> Merged<I> {
    pub(crate) fn new(unmerged: I) -> Self {
        Self { unmerged: Some(unmerged), last: None }
    }
}

impl<I: Iterator<Item = Result<Piece, Error>>> Iterator for Merged<I> {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.unmerged.as_mut().and_then(Iterator::next) {
                Some(Ok(next)) => {
                    if !self.last.as_mut().is_some_and(|last| last.merge(&next))
                        && let Some(complete) = self.last.replace(next)
                    {
                        return Some(Ok(complete));
                    }
                }
                Some(Err(error)) => {
                    self.unmerged = None;
                    self.last = None;
                    return Some(Err(error));
                }
                None => return self.last.take().map(Ok),
            }
        }
    }
}
