//! A target in memory that holds the one-pass decoder to its contract.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use formats::index::Layout;
use formats::one_pass::{Limits, OnePass, OnePassError, Output};

use crate::reader::{DISK_MAX, decompress, header_of};

/// Puts the disk together like a consumer that is as late and as lazy as it is allowed to be: data is written at the
/// very end, and zeroes in it not at all. Whatever is parked is written at once.
pub struct Checked {
    layout: Arc<dyn Layout>,
    target: Vec<u8>,
    /// What each sector of the disk has seen.
    sectors: Vec<Sector>,
    /// Data to be written at the end.
    late: Vec<(u64, Vec<u8>)>,
    /// The chunk now being supplied.
    chunk: Vec<u8>,
    moved: Moved,
}

/// Bytes that went into the target to be parked, and out of it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub stored: u64,
    pub loaded: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    Zero,
    Parked,
    /// Parked, and then found to be in its place.
    Kept,
    Data,
}

const SECTOR: u64 = 512;

impl Checked {
    fn new(layout: Arc<dyn Layout>, space_behind: u64) -> Self {
        let size = layout.virtual_size() + space_behind;
        let sectors = vec![Sector::Zero; size.div_ceil(SECTOR) as usize];
        let (target, late, chunk) = (vec![0; size as usize], Vec::new(), Vec::new());
        Self { layout, target, sectors, late, chunk, moved: Moved::default() }
    }

    /// The state of the sectors that a range touches.
    fn touch(&mut self, at: u64, len: u64) -> &mut [Sector] {
        &mut self.sectors[(at / SECTOR) as usize..(at + len).div_ceil(SECTOR) as usize]
    }

    fn data(&mut self, bytes: Vec<u8>, guest: u64) {
        let end = guest + bytes.len() as u64;
        assert!(end <= self.layout.virtual_size(), "data for {guest}, behind the disk");
        for sector in self.touch(guest, bytes.len() as u64) {
            let free = [Sector::Zero, Sector::Data].contains(sector); // subclusters and odd chunks
            assert!(free, "data for {guest}, which is {sector:?}");
            *sector = Sector::Data;
        }
        self.late.push((guest, bytes));
    }

    fn compressed_data(&mut self, bytes: &[u8], guest: u64) -> io::Result<()> {
        let broken = || io::Error::other(format!("the compressed cluster for {guest} is broken"));
        let mut cluster = decompress(&*self.layout, bytes, guest).ok_or_else(broken)?;
        cluster.truncate((self.layout.virtual_size() - guest) as usize);
        if !(cluster.len() as u64).is_multiple_of(SECTOR) {
            return Err(broken());
        }
        self.data(cluster, guest);
        Ok(())
    }

    /// The disk, once the pass is over.
    fn disk(mut self) -> Vec<u8> {
        assert!(!self.sectors.contains(&Sector::Parked), "parked bytes survived");
        for (sector, state) in self.target.chunks(SECTOR as usize).zip(&self.sectors) {
            let clean = *state == Sector::Kept || sector.iter().all(|&byte| byte == 0);
            assert!(clean, "a {state:?} sector is not clean before data is written");
        }
        for (guest, bytes) in self.late {
            for (target, byte) in self.target[guest as usize..].iter_mut().zip(bytes) {
                if byte != 0 {
                    assert_eq!(*target, 0, "two bytes for one address");
                    *target = byte;
                }
            }
        }
        self.target.truncate(self.layout.virtual_size() as usize);
        self.target
    }
}

impl Output for Checked {
    fn plain(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        assert!(!range.is_empty());
        self.data(self.chunk[range].to_vec(), guest);
        Ok(())
    }

    fn compressed(&mut self, range: Range<usize>, guest: u64) -> io::Result<()> {
        let bytes = self.chunk[range].to_vec();
        self.compressed_data(&bytes, guest)
    }

    fn plain_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        assert!(!bytes.is_empty() && bytes.len() <= 1 << 20);
        self.data(bytes, guest);
        Ok(())
    }

    fn compressed_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()> {
        self.compressed_data(&bytes, guest)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        for sector in self.touch(at, bytes.len() as u64) {
            let free = [Sector::Zero, Sector::Parked].contains(sector);
            assert!(free, "parked at {at}, which is {sector:?}");
            *sector = Sector::Parked;
        }
        self.target[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.moved.stored += bytes.len() as u64;
        Ok(())
    }

    fn keep(&mut self, at: u64, len: u64) -> io::Result<()> {
        for sector in self.touch(at, len) {
            assert_eq!(*sector, Sector::Parked, "nothing was parked at {at}");
            *sector = Sector::Kept;
        }
        Ok(())
    }

    fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        for sector in self.touch(at, buffer.len() as u64) {
            assert_eq!(*sector, Sector::Parked, "nothing was parked at {at}");
        }
        self.moved.loaded += buffer.len() as u64;
        buffer.copy_from_slice(&self.target[at as usize..][..buffer.len()]);
        Ok(())
    }

    fn clear(&mut self, at: u64, len: u64) -> io::Result<()> {
        for sector in self.touch(at, len) {
            let free = [Sector::Zero, Sector::Parked].contains(sector);
            assert!(free, "cleared at {at}, which is {sector:?}");
            *sector = Sector::Zero;
        }
        self.target[at as usize..(at + len) as usize].fill(0);
        Ok(())
    }
}

/// What one pass made of an image.
#[derive(Debug)]
pub struct Outcome {
    pub disk: Vec<u8>,
    pub moved: Moved,
}

/// The disk in `image`, supplied in chunks of `chunk_len`; its length is known only at its end.
pub fn in_one_pass(
    image: &[u8],
    chunk_len: usize,
    limits: Limits,
) -> Result<Outcome, OnePassError> {
    in_one_pass_with(image, chunk_len, limits, 0)
}

/// The same where the target has so many bytes behind the disk.
pub fn in_one_pass_with(
    image: &[u8],
    chunk_len: usize,
    limits: Limits,
    space_behind: u64,
) -> Result<Outcome, OnePassError> {
    let layout = header_of(image, None, DISK_MAX)?;
    let size = layout.virtual_size();
    let mut output = Checked::new(Arc::clone(&layout), space_behind);
    let pass = OnePass::new(layout, limits)?;
    let mut pass = pass.with_space_behind(&(size..size + space_behind));
    for chunk in image.chunks(chunk_len) {
        output.chunk.clear();
        output.chunk.extend(chunk);
        pass.supply(chunk, &mut output)?;
    }
    pass.finish(&mut output)?;
    let moved = output.moved;
    Ok(Outcome { disk: output.disk(), moved })
}
