//! Golden images on the installed system: from a tag that moves in a real registry to the bytes on a virtual machine's
//! disk.
//!
//! No test waits for a schedule: those of its DataImportCrons are due in a year. Polls are requested by the documented
//! annotation.

mod by_hand;
mod classes;
mod forms;
mod jobs;
mod platform;
mod quay;
mod refresh;
mod removal;
mod sources;
mod streams;
mod waiting;
mod world;
