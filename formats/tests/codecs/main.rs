//! Decompressors against the programs that people compress with, and against everything that can go wrong.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

mod cluster;
mod damage;
mod fixtures;
mod probe;
mod roundtrip;
mod units;
