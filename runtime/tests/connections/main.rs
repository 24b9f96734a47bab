//! Real connections on loopback: clients that never ask, never end and never leave, and what goes on meanwhile.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod attack;
mod flood;
mod limits;
mod server;
