//! Tests of whole disks, on the file systems and devices of this machine.

mod allocation;
mod devices;
mod files;
mod model;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::opening::IoFeatures;
use super::unmap::UnmapLimits;
use super::*;
use crate::sink::Sink;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

const FAST: Option<UnmapLimits> = Some(UnmapLimits::DEFAULT);

/// Limits that every device exceeds.
const SLOW: Option<UnmapLimits> =
    Some(UnmapLimits { first_piece: MIB, rate_min: f64::INFINITY, rest_max: Duration::ZERO });

const EVERY_WAY: [IoFeatures; 6] = [
    IoFeatures { direct: true, unmap: FAST },
    IoFeatures { direct: true, unmap: SLOW },
    IoFeatures { direct: true, unmap: None },
    IoFeatures { direct: false, unmap: FAST },
    IoFeatures { direct: false, unmap: SLOW },
    IoFeatures { direct: false, unmap: None },
];

fn sparse(size: u64) -> DiskOptions {
    DiskOptions { size, preallocate: false, resume: false }
}

/// Bytes of a file that are allocated.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// An error and all its causes, as a person reads them.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// The chain of an error that contains all of `words`.
#[track_caller]
fn assert_message<T: fmt::Debug, E: std::error::Error>(result: Result<T, E>, phrase: &[&str]) {
    let message = chain(&result.expect_err("it should have failed"));
    for word in phrase {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
}
