//! Copying matches: bytes from some way back in the output, again.

use super::Invalid;
use super::history::History;
use super::output::OutputByte;

/// Bytes that [`fast`] may write behind the end of a match.
pub(super) const OVERRUN: usize = 32;

/// Copies a match to `out[filled..]`. What follows the match up to [`OVERRUN`] bytes is overwritten too, and has to be
/// there.
#[inline(always)]
pub(super) fn fast<B: OutputByte>(
    out: &mut [B],
    filled: usize,
    distance: usize,
    len: usize,
    history: &History<B>,
) -> Result<(), Invalid> {
    if distance > filled {
        return slow(out, filled, distance, len, history);
    }
    if distance >= 16 {
        step::<16>(out, filled, distance);
        step::<16>(out, filled + 16, distance);
        let mut done = 32;
        while done < len {
            step::<16>(out, filled + done, distance);
            step::<16>(out, filled + done + 16, distance);
            done += 32;
        }
    } else if distance >= 8 {
        let mut done = 0;
        while done < len {
            step::<8>(out, filled + done, distance);
            step::<8>(out, filled + done + 8, distance);
            done += 16;
        }
    } else if distance == 1 {
        let byte = out[filled - 1];
        let mut done = 0;
        while done < len {
            out[filled + done..][..32].fill(byte);
            done += 32;
        }
    } else {
        repeat(out, filled, distance, len);
    }
    Ok(())
}

/// Copies the `N` bytes that begin `distance` bytes back; `distance` is at least `N`.
#[inline(always)]
fn step<const N: usize>(out: &mut [impl OutputByte], filled: usize, distance: usize) {
    let (before, after) = out.split_at_mut(filled);
    let from = &before[filled - distance..][..N];
    after[..N].copy_from_slice(from);
}

/// A match that overlaps itself: the first bytes again and again.
fn repeat<B: OutputByte>(out: &mut [B], filled: usize, distance: usize, len: usize) {
    let mut bytes = [B::default(); 8];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = out[filled - distance + at % distance];
    }
    let whole = 8 - 8 % distance;
    let mut done = 0;
    while done < len {
        out[filled + done..][..8].copy_from_slice(&bytes);
        done += whole;
    }
}

/// Copies a match that may begin in the history, and not a byte more.
#[cold]
pub(super) fn slow<B: OutputByte>(
    out: &mut [B],
    filled: usize,
    distance: usize,
    len: usize,
    history: &History<B>,
) -> Result<(), Invalid> {
    let history = history.as_slice();
    let mut done = 0;
    if let Some(before) = distance.checked_sub(filled).filter(|before| *before > 0) {
        let from = history.len().checked_sub(before).ok_or("a match begins before the data")?;
        done = before.min(len);
        out[filled..][..done].copy_from_slice(&history[from..][..done]);
    }
    for at in filled + done..filled + len {
        out[at] = out[at - distance];
    }
    Ok(())
}
