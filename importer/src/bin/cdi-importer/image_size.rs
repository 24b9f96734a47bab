//! `cdi-image-size-detection`: reports the size of the disk in a volume to the controller, in the termination message.

use std::fmt;
use std::path::Path;

use contract::paths;
use importer::{FileSource, size_of_disk};
use runtime::{
    Flags, SandboxPolicy, SandboxRequirement, TcpConnect, TerminationMessage, enter_sandbox,
};

/// Why there is no size, by the code that a controller knows.
#[derive(Clone, Copy)]
enum Failure {
    Arguments = 1,
    File = 2,
    Path = 3,
    Termination = 4,
    Sandbox = 5,
}

/// Returns the exit code.
pub fn detect() -> u8 {
    let flags = runtime::start_program(
        &["cdi_importer", "importer", "pipeline", "runtime"],
        &["image-path", "scheme"],
    );
    match run(&flags) {
        Ok(()) => 0,
        Err(failure) => failure as u8,
    }
}

fn run(flags: &Flags) -> Result<(), Failure> {
    let report = |failure, because: &dyn fmt::Display| {
        tracing::error!("{because}");
        failure
    };
    let path = flags.get("image-path").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| report(Failure::Arguments, &"-image-path is missing"))?;
    let path = path.strip_prefix(flags.get("scheme").unwrap_or("file://")).unwrap_or(path);
    let mut termination = TerminationMessage::open(Path::new(paths::TERMINATION_LOG));
    // While there is one thread. It reads the image, and connects to nothing.
    let policy = SandboxPolicy {
        read: vec![path.into()],
        connect: TcpConnect::Ports(Vec::new()),
        ..SandboxPolicy::default()
    };
    enter_sandbox(&policy, SandboxRequirement::from_environment())
        .map_err(|error| report(Failure::Sandbox, &error))?;
    let source = FileSource::open(path).map_err(|error| report(Failure::Path, &error))?;
    let size = size_of_disk(&source).map_err(|error| report(Failure::File, &error))?;
    tracing::info!("{path} holds a disk of {size} bytes");
    termination.write(&size.to_string()).map_err(|error| report(Failure::Termination, &error))
}
