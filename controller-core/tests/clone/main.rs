//! Clones: the choice of a method, and their steps.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod cluster;
mod plan;
mod steps;
