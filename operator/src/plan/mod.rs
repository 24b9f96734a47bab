//! The decisions of the installer: pure functions of what is in the cluster, what is desired, and the time.

pub mod abrupt_pods;
pub mod account_tokens;
pub mod authority;
pub mod completion;
pub mod drift;
pub mod lifecycle;
mod merge;
pub mod removal;
pub mod routes;
pub mod status;
pub mod stored_versions;
pub mod version;
