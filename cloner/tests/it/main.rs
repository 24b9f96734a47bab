//! Whole clones: to a fake upload server, to our own, and to another volume of the same pod.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod local;
mod pair;
mod program;
mod receiver;
mod relay;
mod send;
