//! Golden images on the installed system: from a tag that moves in a real registry to the bytes on a machine's disk.
//!
//! No test waits for a clock: the schedules of its crons are a year away, and what is documented to have a source asked at
//! once does so.

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
mod world;
