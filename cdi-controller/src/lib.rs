//! What the controllers decide, and in [`act`] how they carry it out.
//!
//! Each module but that one is one decision: a pure function from what is in the cluster, and a clock, to what should be
//! there. Its facts are objects that somebody has fetched, its plan is what to write and what to tell people. Nothing in
//! them talks to a cluster or looks at a clock of its own, so every row of a decision table is a test. The same facts always
//! give the same plan, and the plan for a cluster that is as it should be is to do nothing.

pub mod act;
pub mod bound;
pub mod claim;
pub mod classes;
pub mod clone;
pub mod conditions;
pub mod config;
pub mod copy;
pub mod data_import_cron;
pub mod data_source;
pub mod data_volume;
pub mod event;
pub mod forklift;
pub mod import;
pub mod meta;
pub mod object_transfer;
pub mod openshift;
mod own_keys;
pub mod ownership;
pub mod populator;
pub mod progress;
pub mod scratch;
pub mod snapshot;
pub mod storage_profile;
pub mod turns;
pub mod upload;
mod virtual_size;
pub mod volume;
pub mod worker;
