//! The controllers: they read facts, let `controller_core` decide, and execute its plans.
//!
//! ```text
//! watch ─► cache ─► wake ─► work queue ─► controllers: observe ─► plan (controller_core) ─► execute ─► report
//! ```
//!
//! There is one watch for each kind, and all controllers read the same caches. A work item is the name of an object:
//! whatever happened to it, its controller reads all of it and brings it one step on. So nothing is lost when the process
//! ends between two writes, and a write that was done already is done again without harm.

mod controllers;
mod engine;
mod image_polling;
mod wake;

pub use engine::{Error, FLAGS, NAMESPACE_FILE, Settings, run};

#[cfg(test)]
mod tests;
