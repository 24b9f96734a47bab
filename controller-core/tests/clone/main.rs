//! Clones: which way, and step by step.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod plan;
mod steps;
mod world;
