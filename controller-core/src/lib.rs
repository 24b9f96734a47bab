//! Every decision of the control plane: a pure function from facts about the cluster, and the time, to a plan.
//!
//! Facts are objects that a caller has fetched; a plan is what to write and which events to record. Nothing here talks to a
//! cluster, reads a clock, a file or a random number, so that every row of a decision table is a test. The same facts always
//! give the same plan, and the plan for a cluster that is as it should be is to do nothing.
//!
//! `cdi-controller` observes and executes; `apiserver` uses the same decisions for admission.

pub mod bound;
pub mod claim;
pub mod claim_kind;
pub mod classes;
pub mod clone;
pub mod components;
pub mod conditions;
pub mod config;
pub mod copy;
pub mod data_import_cron;
pub mod data_source;
pub mod data_volume;
pub mod event;
pub mod forklift;
pub mod import;
mod kinds;
pub mod meta;
pub mod object;
pub mod object_transfer;
pub mod openshift;
pub mod operation;
mod own_keys;
pub mod ownership;
pub mod plan;
pub mod populator;
pub mod progress;
pub mod refusal;
pub mod scratch;
pub mod snapshot;
pub mod snapshot_class;
pub mod storage_profile;
pub mod turns;
pub mod upload;
pub mod virtual_size;
pub mod volume;
pub mod worker;
