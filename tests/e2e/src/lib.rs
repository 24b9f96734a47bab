//! What a test against the real cluster needs: a namespace of its own, waits that tell what they waited for, pods that
//! run one command, and, when it fails, everything the cluster knows about it.

mod claim;
mod controller;
mod pod;
mod report;
mod test;

pub use claim::{Claim, is_bound};
pub use controller::{Controller, IMPORTER};
pub use pod::{PodPlan, is_ready};
pub use test::{Kind, Test, run, run_alone};
