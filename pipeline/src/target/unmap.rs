//! Zeroing a whole device by its own command before the first byte of the disk: then the gaps of the disk cost nothing.

use std::io;
use std::time::{Duration, Instant};

use super::device::{Device, HEAD, PIECE};
use super::dual_path_file::{DualPathFile, Zeroing};
use crate::zeroes::is_zero;

/// Where nonzero bytes are written first, to verify that the device's command hides them.
const PROBE: u64 = HEAD / 2;
const PROBE_LEN: usize = 64 << 10;

/// Samples that are read back, to verify that they are zero.
const SAMPLES: u64 = 64;

/// What was done to a device before the first byte of the disk was written. The numbers are those in its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// It cannot zero itself, or must not.
    Nothing = 0,
    /// All of it was zeroed.
    Zeroed = 1,
    /// It can zero itself, but so slowly that only the gaps of the disk are zeroed.
    UnmapsSlowly = 2,
}

impl Preparation {
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Nothing, Self::Zeroed, Self::UnmapsSlowly]
            .into_iter()
            .find(|preparation| *preparation as u64 == number)
    }
}

/// Until when zeroing a whole device is worth its time. Where the disk has data, it is zeroed for nothing.
#[derive(Clone, Copy, Debug)]
pub struct UnmapLimits {
    /// Bytes after which the speed is known.
    pub first_piece: u64,
    /// Bytes per second. Most devices only note that a range is zero, and do so at hundreds of GiB per second. Those
    /// that write the zeroes take as long for them as for data.
    pub rate_min: f64,
    /// A slow device is zeroed nevertheless if the rest of it takes no longer than this.
    pub rest_max: Duration,
}

impl UnmapLimits {
    pub const DEFAULT: Self = Self {
        first_piece: 64 << 20,
        rate_min: 512.0 * 1024.0 * 1024.0,
        rest_max: Duration::from_secs(1),
    };

    /// Whether the rest of the device is better left. `done` bytes took `elapsed`, `left` bytes are left.
    fn are_exceeded(&self, done: u64, elapsed: Duration, left: u64) -> bool {
        let rate = done as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
        rate < self.rate_min && left as f64 > rate * self.rest_max.as_secs_f64()
    }
}

/// Unmaps all of the device, which Linux permits only if it then reads as zeroes, and verifies that. In any other case
/// the head is zeroed as before.
pub fn unmap(
    disk_file: &DualPathFile,
    length: u64,
    limits: &UnmapLimits,
) -> io::Result<Preparation> {
    disk_file.write(PROBE, &[0xa5; PROBE_LEN])?;
    disk_file.sync()?;
    let started = Instant::now();
    let mut done = 0;
    let mut is_slow = false;
    while done < length && !is_slow {
        let piece = if done == 0 { limits.first_piece } else { PIECE };
        let end = length.min(done + piece);
        if let Err(error) = disk_file.ask_for_zeroes(Zeroing::Hole, done..end) {
            tracing::debug!(%error, "the device cannot unmap, zeroes will be written");
            Device::wipe_head(disk_file, length)?;
            return Ok(Preparation::Nothing);
        }
        done = end;
        is_slow = limits.are_exceeded(done, started.elapsed(), length - done);
    }
    disk_file.sync()?;
    let all_zero = reads_zero(disk_file, PROBE, PROBE_LEN)? && samples_read_zero(disk_file, done)?;
    if !all_zero {
        tracing::warn!(
            "the device reported that it was unmapped but still returns old data; writing zeroes"
        );
        Device::wipe_head(disk_file, length)?;
        return Ok(Preparation::Nothing);
    }
    if is_slow {
        let seconds = started.elapsed().as_secs_f64();
        tracing::debug!(
            "the device took {seconds:.1} s to unmap {done} bytes; only gaps will be unmapped"
        );
        return Ok(Preparation::UnmapsSlowly);
    }
    Ok(Preparation::Zeroed)
}

/// Of the first `end` bytes.
fn samples_read_zero(disk_file: &DualPathFile, end: u64) -> io::Result<bool> {
    const SAMPLE: u64 = 4096;
    // Both ends, and evenly between. What comes here is longer than a sample.
    let last = end - SAMPLE;
    for n in 0..SAMPLES {
        let at = last / (SAMPLES - 1) * n;
        if !reads_zero(disk_file, at, SAMPLE as usize)? {
            return Ok(false);
        }
    }
    reads_zero(disk_file, last, SAMPLE as usize)
}

fn reads_zero(disk_file: &DualPathFile, at: u64, len: usize) -> io::Result<bool> {
    let mut bytes = vec![0xff; len];
    disk_file.read(at, &mut bytes)?;
    Ok(is_zero(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_data_at_either_end_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4 << 20).unwrap();
        let disk_file = DualPathFile::new(file.reopen().unwrap(), file.path(), true);
        assert!(samples_read_zero(&disk_file, 4 << 20).unwrap());
        for at in [0, (4 << 20) - 1] {
            disk_file.write(at, &[1]).unwrap();
            assert!(!samples_read_zero(&disk_file, 4 << 20).unwrap(), "byte {at}");
            disk_file.write(at, &[0]).unwrap();
        }
    }

    #[test]
    fn a_slow_device_is_zeroed_only_if_little_is_left() {
        const MIB: u64 = 1 << 20;
        for (done, milliseconds, left, expected) in [
            (64, 0, 1 << 20, false),
            (64, 50, 1 << 20, false),
            (64, 640, 4032, true),
            (64, 3200, 4032, true),
            (64, 640, 99, false),
            (64, 640, 101, true),
            (1088, 700, 1 << 20, false),
            (1088, 11_000, 3008, true),
        ] {
            let elapsed = Duration::from_millis(milliseconds);
            let found = UnmapLimits::DEFAULT.are_exceeded(done * MIB, elapsed, left * MIB);
            assert_eq!(found, expected, "{done} MiB in {milliseconds} ms, {left} MiB left");
        }
    }
}
