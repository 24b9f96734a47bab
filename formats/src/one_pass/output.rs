//! The interface between the one-pass decoder and the writer of the disk.

use std::io;
use std::ops::Range;

/// Receives the guest's data, and stores bytes that are parked.
///
/// `plain`, `compressed` and their `_owned` forms pass on data of the guest; they may be carried out later, on any
/// thread, in any order. `store`, `load` and `clear` are carried out before they return. The decoder never parks in a range
/// that it has passed on data for, and clears a range it has parked in before it passes on data for that range: so
/// no call has to wait, and data may leave its zero parts unwritten.
pub trait Output {
    /// The bytes `range` of the chunk now being supplied are the disk's at `guest`.
    ///
    /// # Errors
    /// What went wrong so far; the pass is then over. The same is true of all others.
    fn plain(&mut self, range: Range<usize>, guest: u64) -> io::Result<()>;

    /// The bytes `range` of the chunk now being supplied are the compressed cluster of the disk at `guest`, followed by
    /// bytes that are not part of it. It decompresses to one cluster; what of that lies behind the disk's end is to be
    /// dropped.
    fn compressed(&mut self, range: Range<usize>, guest: u64) -> io::Result<()>;

    /// As [`plain`](Self::plain), for bytes that are not (all) in the chunk.
    fn plain_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()>;

    /// As [`compressed`](Self::compressed), for bytes that are not (all) in the chunk.
    fn compressed_owned(&mut self, bytes: Vec<u8>, guest: u64) -> io::Result<()>;

    /// Parks `bytes` at `at`, in a range that has not received data of its own: inside the disk, in the
    /// [space behind it](crate::one_pass::OnePass::with_space_behind), or at the border of both.
    fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// What was parked in this range turned out to belong there: from now on it is data that has been passed on. There is
    /// nothing to do, but perhaps something to count.
    fn keep(&mut self, at: u64, len: u64) -> io::Result<()> {
        let _ = (at, len);
        Ok(())
    }

    /// Reads back what was parked at `at`.
    fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Makes a range zero again in which bytes were parked.
    fn clear(&mut self, at: u64, len: u64) -> io::Result<()>;
}
