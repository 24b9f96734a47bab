//! The HTTP contract of the upload proxy, asked over real TLS, with real upload servers behind it. Only the cluster is a
//! toy: what it says of claims is what a test wants it to say.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod chromium;
mod faults;
mod flood;
mod page;
mod refusals;
mod resumable;
mod uploads;
mod world;
