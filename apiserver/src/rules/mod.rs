//! Admission rules: pure functions from a request and looked-up facts to a result. Messages are upstream CDI's, as clients
//! (`virtctl`, KubeVirt) match them.

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

const GROUP: &str = api::names::GROUP;
