//! The HTTP contract of the upload proxy over real TLS, with real upload servers. Only the cluster is a
//! fake: each test sets the state of its PVCs.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod chromium;
mod faults;
mod flood;
mod page;
mod records;
mod refusals;
mod resumable;
mod uploads;
mod world;
