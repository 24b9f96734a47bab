//! Serves the disk of a container image to the importer beside it. Copied into whatever image it is, and run there.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use importer::image_server::shell::{Copy, NO_SUCH_COMMAND, is_called_so};
use importer::image_server::{Config, Parsed, USAGE, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    if arguments.next().is_some_and(|name| is_called_so(&name)) {
        return copy(arguments);
    }
    match Config::parse(arguments) {
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

/// What a shell would do.
fn copy(arguments: std::env::Args) -> ExitCode {
    let copy = match Copy::parse(arguments) {
        Ok(copy) => copy,
        Err(because) => {
            eprintln!("{because}");
            return ExitCode::from(NO_SUCH_COMMAND);
        }
    };
    match copy.make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot copy {} to {}: {error}", copy.from.display(), copy.to.display());
            ExitCode::FAILURE
        }
    }
}
