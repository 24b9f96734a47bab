//! Serves the disk of a container image to the importer beside it. Copied into whatever image it is, and run there.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use importer::image_server::{Config, Parsed, USAGE, run};

fn main() -> ExitCode {
    match Config::parse(std::env::args().skip(1)) {
        Ok(Parsed::Help) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Parsed::Run(config)) => match run(&config, &Arc::default()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                eprintln!("{error}{cause}");
                ExitCode::FAILURE
            }
        },
        Err(because) => {
            eprint!("{because}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}
