//! `cdi-uploadserver`: the program of an upload pod. The library says what it does.

use std::error::Error as StdError;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use contract::job::{ExitMessage, paths, termination_text};
use runtime::sandbox::directory_of;
use runtime::{
    SandboxMissing, SandboxPolicy, SandboxRequirement, StopSignals, TcpConnect, Termination, chain,
    enter_sandbox,
};
use uploadserver::{End, Settings, run};

/// A process that was told to stop has not succeeded: its container would count as complete.
const TOLD_TO_STOP: u8 = 128 + 15;

fn main() -> ExitCode {
    if let Some(code) = runtime::run_container_command(std::env::args()) {
        return code;
    }
    runtime::begin(&["cdi_uploadserver", "uploadserver", "auth", "pipeline", "runtime"], &[]);
    let settings = match Settings::from_environment(&runtime::environment()) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("{error}");
            return error.exit_code().into();
        }
    };
    let mut termination = Termination::open(Path::new(paths::TERMINATION_LOG));
    let disk = settings.destination.clone();
    match serve(settings) {
        Ok(End::Stopped) => TOLD_TO_STOP.into(),
        Ok(end) => {
            let with_size =
                |message| ExitMessage { virtual_size: size_in_file(&end, &disk), ..message };
            if let Some(words) = end.message().map(|message| with_size(message).to_json()) {
                tracing::info!("{words}");
                if let Err(error) = termination.write(&words) {
                    tracing::warn!("cannot write {}: {error}", termination.path().display());
                }
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let text = chain(&*error);
            tracing::error!("UploadServer failed: {text}");
            let _ = termination.write(&termination_text(&text)); // the log says it too
            ExitCode::FAILURE
        }
    }
}

/// The size of a disk, where it is in a file: what clones of it need at least.
fn size_in_file(end: &End, disk: &Path) -> Option<u64> {
    let is_complete = matches!(end, End::Complete(_));
    let facts = std::fs::metadata(disk).ok().filter(|_| is_complete)?;
    facts.is_file().then_some(facts.len())
}

fn serve(settings: Settings) -> Result<End, Box<dyn StdError>> {
    let listener = TcpListener::bind(settings.listen)?;
    enter_upload_sandbox(&settings)?; // while there is one thread
    // One for the network, beside those of the pipeline: two would wake each other for every record of TLS.
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = thread.block_on(async {
        let mut signals = StopSignals::listen()?;
        let stop = async {
            let signal = signals.next().await;
            tracing::warn!("asked to stop by signal {signal}");
        };
        Ok::<_, Box<dyn StdError>>(run(settings, listener, stop).await?)
    })?;
    thread.shutdown_background(); // a transfer that runs is ended with the process
    Ok(end)
}

/// It writes the volume and the journal, and connects to nothing.
fn enter_upload_sandbox(settings: &Settings) -> Result<(), SandboxMissing> {
    let volume = match settings.destination.starts_with("/dev") {
        true => settings.destination.clone(),
        false => directory_of(&settings.destination),
    };
    let files = [&settings.certificate, &settings.key, &settings.client_ca];
    let policy = SandboxPolicy {
        read: files.map(Clone::clone).into(),
        write: vec![volume, settings.journal.clone()],
        listen: Vec::new(), // it has its port already
        connect: TcpConnect::Ports(Vec::new()),
    };
    enter_sandbox(&policy, SandboxRequirement::of_worker())?;
    Ok(())
}
