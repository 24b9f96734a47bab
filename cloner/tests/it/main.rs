//! Clones, whole: to a server that stands in for the upload server, and to a volume beside.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod local;
mod pair;
mod program;
mod receiver;
mod relay;
mod send;
