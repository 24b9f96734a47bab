//! What the controllers decide: pure functions from what is in the cluster, and a clock, to what should be there.
//!
//! Each module is one decision. Its facts are objects that somebody has fetched, its plan is what to write and what to
//! tell people. Nothing here talks to a cluster, and nothing here looks at a clock of its own, so every row of a decision
//! table is a test. The same facts always give the same plan, and the plan for a cluster that is as it should be is to
//! do nothing.

pub mod bound;
pub mod claim;
pub mod classes;
pub mod conditions;
pub mod config;
pub mod data_import_cron;
pub mod data_source;
pub mod data_volume;
pub mod event;
pub mod import;
pub mod meta;
pub mod ownership;
pub mod populator;
pub mod progress;
pub mod scratch;
pub mod snapshot;
pub mod storage_profile;
pub mod worker;
