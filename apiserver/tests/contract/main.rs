//! The real program over TLS on loopback, with the API server and other clients.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod admission;
mod client;
mod cluster;
mod flood;
mod golden_images;
mod hostile;
mod load;
mod program;
mod sandbox;
mod settings;
mod sources;
mod tokens;
mod webhook_clients;
