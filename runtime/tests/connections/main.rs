//! Real connections on loopback: clients that send no request, never finish one or never close, and a well-behaved client meanwhile.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod attack;
mod flood;
mod limits;
mod server;
