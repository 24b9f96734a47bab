//! Serves the disk of a container image to the importer in the same pod. Copied into the image and run there.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use importer::image_server::shell::{Copy, NO_SUCH_COMMAND, is_called_so};
use importer::image_server::{Config, Parsed, USAGE, serve};
use runtime::container_command::ContainerCommand;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let name = arguments.next().unwrap_or_default();
    if is_called_so(&name) {
        return shell(&name, arguments.collect());
    }
    if let Some(code) = runtime::run_container_command(std::env::args()) {
        return code;
    }
    match Config::parse(arguments) {
        Ok(Parsed::Help) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(Parsed::Run(config)) => match serve(&config, &Arc::default()) {
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

/// What a shell would do: copy the program, or what clients run in the container.
fn shell(name: &str, arguments: Vec<String>) -> ExitCode {
    if ContainerCommand::parse_shell_arguments(&arguments).is_ok() {
        let all = std::iter::once(name.to_owned()).chain(arguments);
        return runtime::run_container_command(all).unwrap_or(ExitCode::from(NO_SUCH_COMMAND));
    }
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
