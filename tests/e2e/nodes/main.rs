//! A cluster of two nodes, of `cargo xtask cluster up --nodes 2`: what the rig promises of it. With one node each test fails.

mod network;
mod storage;
mod world;
