//! Files with holes: only the pieces between the holes are in the archive, and a map of them.
//!
//! Four dialects of GNU tar are read. Source: the manual of GNU tar, "Storing Sparse Files".
//!
//! | dialect | where the map is |
//! |---|---|
//! | old GNU, type `S` | four pieces in the header, 21 in each block behind it |
//! | pax 0.0 | a record for each number |
//! | pax 0.1 | one record, numbers with commas between |
//! | pax 1.0 | before the content, numbers on lines of their own, filled up to a whole block |

use std::io::{self, Read};

use super::header::number;
use super::{Archive, BLOCK, corrupt};
use crate::Error;

/// Pieces of one file. Each costs 16 bytes of memory.
const PIECES_MAX: usize = 1 << 20;
/// Larger sizes are rejected, so that the sum of two cannot overflow.
const SIZE_MAX: u64 = 1 << 62;

/// The holes of a file, from a header and the records before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holes {
    /// The rest of the map is behind the header, as long as `goes_on`.
    OldGnu { pieces: Vec<(u64, u64)>, goes_on: bool, size: u64 },
    /// This is the map.
    Listed { pieces: Vec<(u64, u64)>, size: u64 },
    /// The map is before the content.
    InContent { size: u64 },
}

/// Fields of an old header: places of the pieces, whether more follow, and the size of the file.
pub(super) fn old_gnu(block: &[u8], at: u64) -> Result<Holes, Error> {
    let mut pieces = Vec::new();
    old_pieces(&block[386..482], at, &mut pieces)?;
    let size = number(&block[483..495]).ok_or(corrupt(at, "a size is not a number"))?;
    Ok(Holes::OldGnu { pieces, goes_on: block[482] != 0, size })
}

fn old_pieces(fields: &[u8], at: u64, pieces: &mut Vec<(u64, u64)>) -> Result<(), Error> {
    for field in fields.chunks_exact(24).take_while(|field| field[12] != 0) {
        let piece = number(&field[..12]).zip(number(&field[12..]));
        pieces.push(piece.ok_or(corrupt(at, "a piece of a file is not a number"))?);
    }
    Ok(())
}

/// A file of which some pieces are in the archive, and where in it the reader is.
#[derive(Debug)]
pub(super) struct Map {
    pieces: std::vec::IntoIter<(u64, u64)>,
    /// The piece that comes next, or that the reader is in.
    piece: (u64, u64),
    at: u64,
    size: u64,
}

/// What comes next in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Hole(u64),
    Data(u64),
    End,
}

impl Map {
    /// `stored` is how much of the file is in the archive, which has to be what the pieces come to.
    fn new(pieces: Vec<(u64, u64)>, size: u64, stored: u64, at: u64) -> Result<Self, Error> {
        let wrong = || corrupt(at, "the pieces of a file are impossible");
        let (mut end, mut sum) = (0, 0_u64);
        for (begin, length) in &pieces {
            if *begin < end {
                return Err(wrong());
            }
            end = begin.checked_add(*length).filter(|end| *end <= size).ok_or_else(wrong)?;
            sum += length; // no more than the size
        }
        if sum != stored || size > SIZE_MAX {
            return Err(wrong());
        }
        Ok(Self { pieces: pieces.into_iter(), piece: (0, 0), at: 0, size })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn left(&self) -> u64 {
        self.size - self.at
    }

    pub(super) fn next(&mut self) -> Next {
        while self.at == self.piece.0 + self.piece.1 {
            match self.pieces.next() {
                Some(piece) if piece.1 == 0 => {}
                Some(piece) => {
                    self.piece = piece;
                    break;
                }
                None => break,
            }
        }
        let (begin, end) = (self.piece.0, self.piece.0 + self.piece.1);
        match self.at {
            at if at < begin => Next::Hole(begin - at),
            at if at < end => Next::Data(end - at),
            at if at < self.size => Next::Hole(self.size - at),
            _ => Next::End,
        }
    }

    /// Records how far the reader got, at most to the end that [`next`](Self::next) returned.
    pub(super) fn advance(&mut self, length: u64) {
        self.at += length;
    }
}

impl<R: Read> Archive<R> {
    /// Reads what is left of a map. `stored` is the size in the header; the content comes next.
    pub(super) fn map(&mut self, holes: Holes, stored: u64, header_at: u64) -> io::Result<Map> {
        let (pieces, size) = match holes {
            Holes::Listed { pieces, size } => {
                self.enter(stored);
                (pieces, size)
            }
            Holes::OldGnu { mut pieces, mut goes_on, size } => {
                while goes_on {
                    let at = self.at;
                    let block = self.block()?;
                    let block = block.ok_or(Error::Truncated { what: super::WHAT, at })?;
                    old_pieces(&block[..504], at, &mut pieces)?;
                    goes_on = block[504] != 0;
                    check_count(pieces.len() as u64, header_at)?;
                }
                self.enter(stored);
                (pieces, size)
            }
            Holes::InContent { size } => {
                self.enter(stored);
                (self.map_in_content(header_at)?, size)
            }
        };
        check_count(pieces.len() as u64, header_at)?;
        Ok(Map::new(pieces, size, self.content, header_at)?)
    }

    /// Decimal numbers, each on a line: how many pieces, then where each is and how long.
    fn map_in_content(&mut self, header_at: u64) -> io::Result<Vec<(u64, u64)>> {
        let wrong = || corrupt(header_at, "the map of a file with holes is malformed");
        let (mut numbers, mut wanted) = (Vec::new(), 1);
        let mut number: Option<u64> = None;
        while numbers.len() < wanted {
            if self.content < BLOCK {
                return Err(wrong().into());
            }
            let mut block = [0; BLOCK as usize];
            self.read_exact(&mut block)?;
            for byte in block {
                match byte {
                    b'0'..=b'9' => {
                        let more = number.unwrap_or(0).checked_mul(10);
                        let more = more.and_then(|more| more.checked_add(u64::from(byte - b'0')));
                        number = Some(more.ok_or_else(wrong)?);
                    }
                    b'\n' => {
                        let number = number.take().ok_or_else(wrong)?;
                        if numbers.is_empty() {
                            check_count(number, header_at)?;
                            wanted = 1 + 2 * number as usize;
                        }
                        numbers.push(number);
                        if numbers.len() == wanted {
                            break; // the rest of the block is nothing
                        }
                    }
                    _ => return Err(wrong().into()),
                }
            }
        }
        Ok(numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }
}

fn check_count(pieces: u64, at: u64) -> Result<(), Error> {
    if pieces > PIECES_MAX as u64 {
        return Err(corrupt(at, "a file has too many pieces"));
    }
    Ok(())
}
