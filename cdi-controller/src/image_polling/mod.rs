//! Asks sources for newer images, for DataImportCrons: requests, their limits, and what the sources answered.

pub(crate) mod ask;
pub(crate) mod polls;
