//! The HTTP contract of an upload pod, over real TLS: what clients of existing clusters rely on.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod clones;
mod extents;
mod faults;
mod life;
mod process;
mod requests;
mod resumable;
mod server;
