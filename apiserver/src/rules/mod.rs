//! What the API server of the cluster is told to let through: pure functions from a request, and what had to be looked up
//! for it, to a verdict. Messages are those that clients know.

pub mod claims;
pub mod clone;
pub mod data_import_cron;
pub mod data_volume;
pub mod installation;
pub mod object_transfer;
pub mod populator;
pub mod requester;
mod same;
#[cfg(test)]
mod zero_values;

/// The group of the objects that are judged.
const GROUP: &str = api::names::GROUP;
