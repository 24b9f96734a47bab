//! Benchmarks of this project against its peers, on the same bytes, interleaved, on loopback.
//!
//! `cargo xtask bench import`, `many`, `network`, `scaling`, `upload`, `clone` and `start` build the programs as they are shipped and start
//! this one. Nothing here is used by the product, and no figure here decides a test.

mod case;
mod clone;
mod common;
mod contender;
mod disk;
mod goals;
mod import;
mod limit;
mod many;
mod measure;
mod network;
mod network_storage;
mod party;
mod registry;
mod report;
mod scaling;
mod server;
mod shell;
mod slow_disk;
mod start;
mod sys;
mod table;
mod target;
mod upload;
mod work;

use std::process::ExitCode;

use clap::Parser;

/// Benchmarks against common tools.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
enum Command {
    /// Import every kind of image, from a local web server to a file and to a loop device.
    Import(import::Options),
    /// Upload through proxy and server by TLS, against nginx and upstream CDI's pair. Takes root.
    Upload(upload::Options),
    /// Import the same image several times at once.
    Many(many::Options),
    /// Import from a web server behind links with latency, loss and limits. Takes root.
    Network(network::Options),
    /// Import on one core and on more, into memory. Takes root.
    Scaling(scaling::Options),
    /// Copy a disk from one volume to another through TLS, against local tools and upstream CDI's pair. Takes root.
    Clone(clone::Options),
    /// Start importers and upload servers, ours and upstream CDI's. Takes root.
    Start(start::Options),
    /// Started by this program itself.
    #[command(name = network_storage::COMMAND, hide = true)]
    ServeNetworkStorage { capacity: u64 },
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Import(options) => import::run(&options),
        Command::Upload(options) => upload::run(&options),
        Command::Many(options) => many::run(&options),
        Command::Network(options) => network::run(&options),
        Command::Scaling(options) => scaling::run(&options),
        Command::Clone(options) => clone::run(&options),
        Command::Start(options) => start::run(&options),
        Command::ServeNetworkStorage { capacity } => network_storage::serve(capacity),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
