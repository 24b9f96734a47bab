//! One import in a pod: what a controller orders through the environment, carried out and answered.
//!
//! Each step is a file: what there is (`mounts`), what is to be done about it (`plan`), where the image comes from
//! (`connect`), how it ends (`outcome`). Deciding is pure; `run` puts the steps together.

pub(crate) mod access;
mod connect;
mod leftovers;
mod mounts;
mod outcome;
mod plan;
pub(crate) mod progress;
mod run;

pub use mounts::{Mounts, Paths};
pub use plan::{ImportAction, Refusal, plan_job};
pub use run::{ProcessEnvironment, run_importer};
