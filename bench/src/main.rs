//! Benchmarks of this project against its peers, on the same bytes, interleaved, on loopback.
//!
//! `cargo xtask bench import` builds the program as it is shipped and starts this one. Nothing here is used by the
//! product, and no figure here decides a test.

mod case;
mod contender;
mod disk;
mod goals;
mod import;
mod limit;
mod measure;
mod registry;
mod report;
mod server;
mod shell;
mod sys;
mod target;

use std::process::ExitCode;

use clap::Parser;

/// Benchmarks against common tools.
#[derive(Parser)]
#[command(name = "cargo xtask bench")]
enum Command {
    /// Import every kind of image, from a local web server to a file and to a loop device.
    Import(import::Options),
}

fn main() -> ExitCode {
    let Command::Import(options) = Command::parse();
    match import::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
