//! A cluster of two nodes: what the rig promises of it, and this project there. `cargo xtask cluster up --nodes 2` creates one,
//! `cargo xtask cluster install --tests --manifests` installs this project. With one node each test fails.

mod installed;
mod lost;
mod network;
mod placement;
mod split;
mod storage;
mod world;
