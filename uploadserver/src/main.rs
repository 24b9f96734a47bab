//! `cdi-uploadserver`: the program of an upload pod. The library says what it does.

use std::error::Error as StdError;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use contract::job::{paths, termination_text};
use runtime::{Rights, StopSignals, Termination, chain, confine};
use uploadserver::{End, Settings, run};

/// What Go's `klog.Fatal` ended with, for a deadline that cannot be read.
const FATAL: u8 = 255;
/// A process that was told to stop has not succeeded: its container would count as complete.
const TOLD_TO_STOP: u8 = 128 + 15;

fn main() -> ExitCode {
    runtime::begin(&["cdi_uploadserver", "uploadserver", "auth", "pipeline", "runtime"], &[]);
    let settings = match Settings::from_environment(&runtime::environment()) {
        Ok(settings) => settings,
        Err(error) => {
            tracing::error!("{error}");
            return if error.variable == "DEADLINE" { FATAL.into() } else { ExitCode::FAILURE };
        }
    };
    let mut termination = Termination::open(Path::new(paths::TERMINATION_LOG));
    match serve(settings) {
        Ok(End::Stopped) => TOLD_TO_STOP.into(),
        Ok(end) => {
            if let Some(words) = end.message().map(|message| message.to_json()) {
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

fn serve(settings: Settings) -> Result<End, Box<dyn StdError>> {
    let listener = TcpListener::bind(settings.listen)?;
    give_rights_away(&settings); // before there is a second thread: files are confined by thread
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

/// From here on nothing but the volume and the journal can be written, and nothing started.
fn give_rights_away(settings: &Settings) {
    let system = ["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys", "/dev"].map(Into::into);
    let files =
        [&settings.certificate, &settings.key, &settings.client_authority].map(Clone::clone);
    let read = system.into_iter().chain(files).collect();
    let volume = match settings.destination.parent() {
        Some(folder) if !settings.destination.starts_with("/dev") => folder.to_owned(),
        _ => settings.destination.clone(),
    };
    let confined = confine(&Rights { read, write: vec![volume, settings.journal.clone()] });
    tracing::info!("{confined}");
}
