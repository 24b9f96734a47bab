//! qcow2 against `qemu-img`: what it writes is read as it would read it, and what is broken is refused.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

mod broken;
mod checked;
mod crafted;
mod one_pass;
mod ranges;
mod reader;
mod refusals;
mod second_opinion;
mod shuffled;
