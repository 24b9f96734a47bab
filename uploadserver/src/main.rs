//! `cdi-uploadserver`: the program of an upload pod. See the library.

use std::error::Error as StdError;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use contract::paths;
use contract::termination::ExitMessage;
use contract::termination::termination_text;
use runtime::sandbox::directory_of;
use runtime::{
    SandboxMissing, SandboxPolicy, SandboxRequirement, StopSignals, TcpConnect, TerminationMessage,
    chain, enter_sandbox,
};
use uploadserver::{ServerExit, Settings, serve_upload};

/// Of a process that was stopped by SIGTERM. With 0, the controller would take the upload for complete.
const EXIT_CODE_SIGTERM: u8 = 128 + 15;

const EXIT_CODE_FAILURE: u8 = 1;

fn main() -> ExitCode {
    if let Some(code) = runtime::run_container_command(std::env::args()) {
        return code;
    }
    runtime::exit_process(serve_volume());
}

/// Returns the exit code.
fn serve_volume() -> u8 {
    runtime::start_program(
        &["cdi_uploadserver", "uploadserver", "auth", "pipeline", "runtime"],
        &[],
    );
    let settings = match Settings::from_environment(&runtime::environment()) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("{error}");
            return error.exit_code();
        }
    };
    let mut termination = TerminationMessage::open(Path::new(paths::TERMINATION_LOG));
    let disk = settings.destination.clone();
    match serve(settings) {
        Ok(ServerExit::Stopped) => EXIT_CODE_SIGTERM,
        Ok(end) => {
            let with_size =
                |message| ExitMessage { virtual_size: size_in_file(&end, &disk), ..message };
            if let Some(message) = end.message().map(|message| with_size(message).to_json()) {
                tracing::info!("{message}");
                if let Err(error) = termination.write(&message) {
                    tracing::warn!("cannot write {}: {error}", termination.path().display());
                }
            }
            0
        }
        Err(error) => {
            let text = chain(&*error);
            tracing::error!("UploadServer failed: {text}");
            let _ = termination.write(&termination_text(&text)); // the log has the error already
            EXIT_CODE_FAILURE
        }
    }
}

/// The size of a completed disk in a file: the minimum size of its clones.
fn size_in_file(end: &ServerExit, disk: &Path) -> Option<u64> {
    let is_complete = matches!(end, ServerExit::Complete(_));
    let metadata = std::fs::metadata(disk).ok().filter(|_| is_complete)?;
    metadata.is_file().then_some(metadata.len())
}

fn serve(settings: Settings) -> Result<ServerExit, Box<dyn StdError>> {
    let listener = TcpListener::bind(settings.listen)?;
    enter_upload_sandbox(&settings)?; // before other threads exist: they would stay outside
    // One thread for the network, in addition to those of the pipeline: two would wake each other for every TLS record.
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = thread.block_on(async {
        let mut signals = StopSignals::listen()?;
        let stop = async {
            let signal = signals.next().await;
            tracing::warn!("stopping on signal {signal}");
        };
        Ok::<_, Box<dyn StdError>>(serve_upload(settings, listener, stop).await?)
    })?;
    thread.shutdown_background(); // running transfers end with the process
    Ok(end)
}

/// Permits writing the volume and the journal, and no connections.
fn enter_upload_sandbox(settings: &Settings) -> Result<(), SandboxMissing> {
    let volume = if settings.destination.starts_with("/dev") {
        settings.destination.clone()
    } else {
        directory_of(&settings.destination)
    };
    let files = [&settings.certificate, &settings.key, &settings.client_ca];
    let policy = SandboxPolicy {
        read: files.map(Clone::clone).into(),
        write: vec![volume, settings.journal.clone()],
        listen: Vec::new(), // the listener exists already
        connect: TcpConnect::Ports(Vec::new()),
    };
    enter_sandbox(&policy, SandboxRequirement::from_environment())?;
    Ok(())
}
