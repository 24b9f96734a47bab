//! The HTTP server of one upload or clone, in a pod that mounts the volume.
//!
//! A client with the right certificate sends an image, an archive or another volume. [`pipeline`] writes the disk, or
//! unpacks the files, while the bytes arrive, without scratch space. The response is 200 once all of it is durable and
//! the completion mark is written; then the process ends. If it is killed in between, the next process of the pod finds
//! the mark and ends at once. A failed transfer leaves the volume unfinished and the process ready for another one.

mod body;
mod clone_body;
mod completion_mark;
mod error;
mod extents;
mod multipart;
mod requests;
mod resumable;
mod route;
mod settings;
mod upload_meter;
mod volume_slot;

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use contract::termination::ExitMessage;
use contract::{ByteCount, Volume};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use pipeline::{Staging, Target};
use runtime::https::{self, Limits};
use tokio::sync::watch;
use tower_service::Service;

use completion_mark::CompletionMark;
use extents::InterruptedClone;
use requests::{Client, ServerState, handle_request};
use resumable::ResumableUploads;
use upload_meter::UploadMeter;
use volume_slot::VolumeSlot;

pub use settings::Settings;
pub use volume_slot::Completed;

/// After the deadline, how often to check for transfers.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// For a suspended upload to sync what it has received.
const SUSPEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerExit {
    Complete(Completed),
    /// The certificates expire, and no transfer was running.
    DeadlinePassed,
    /// By a signal.
    Stopped,
}

impl ServerExit {
    /// The termination message for the controller; none if the server was stopped.
    pub fn message(self) -> Option<ExitMessage> {
        match self {
            Self::Complete(Completed { cloned, preallocated }) => Some(ExitMessage {
                preallocation_applied: Some(preallocated),
                message: Some(if cloned { "Clone Complete" } else { "Upload Complete" }.into()),
                ..ExitMessage::default()
            }),
            Self::DeadlinePassed => Some(ExitMessage {
                deadline_passed: Some(true),
                message: Some("Deadline Passed".into()),
                ..ExitMessage::default()
            }),
            Self::Stopped => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate or key file cannot be read. Upstream's server begins its error with the same words.
    #[error("invalid TLS config: cannot read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The files are not a usable certificate and key.
    #[error("invalid TLS config")]
    Tls(#[source] auth::Error),
    #[error("cannot determine the free space of {}", path.display())]
    Volume { path: PathBuf, source: io::Error },
    #[error("cannot open {}", path.display())]
    Device { path: PathBuf, source: io::Error },
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Serves until the volume is complete, the deadline has passed, or `stop` completes. Returns at once, without touching
/// the volume, if an earlier process of this pod has completed it.
pub async fn serve_upload(
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<ServerExit, Error> {
    let mark = CompletionMark::in_journal(&settings.journal, &settings.owner_uid);
    if let Some(completed) = mark.read() {
        tracing::info!(
            "an earlier process has completed the volume, and was killed before it could report that"
        );
        return Ok(ServerExit::Complete(completed));
    }
    let tls = tls_config(&settings)?;
    let (target, directory) = open_volume(&settings)?;
    let _device = pipeline::target::hold_device(&settings.destination)
        .map_err(|source| Error::Device { path: settings.destination.clone(), source })?;
    let uploads =
        ResumableUploads::new(&target.path, directory.is_some(), settings.checkpoint_every);
    let app = Arc::new(ServerState {
        client_name: settings.client_name,
        target,
        format: settings.format,
        directory,
        client_silence_max: settings.client_silence_max,
        slot: VolumeSlot::new(mark),
        interrupted_clone: InterruptedClone::default(),
        uploads,
        meter: UploadMeter::new(&settings.owner_uid),
    });
    listener.set_nonblocking(true).map_err(Error::Serve)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Serve)?;
    let address = listener.local_addr().map_err(Error::Serve)?;
    tracing::info!("serving uploads of client {} at {address}", app.client_name);
    let (ended, end) = watch::channel(false);
    let tls = Arc::new(tls);
    let router = Router::new().fallback(handle_request).with_state(Arc::clone(&app));
    let serving = https::serve(
        listener,
        Limits::default(),
        end,
        move || Arc::clone(&tls),
        move |peer| {
            let router = router.clone();
            let client = Client(peer.certificates.first().and_then(auth::common_name));
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(client.clone());
                router.clone().call(request)
            })
        },
    );
    let mut serving = tokio::spawn(serving);
    let exit = tokio::select! {
        completed = app.slot.completed() => ServerExit::Complete(completed),
        completed = wait_for_deadline(settings.deadline, &app) => {
            completed.map_or(ServerExit::DeadlinePassed, ServerExit::Complete)
        }
        () = stop => ServerExit::Stopped,
        never = app.meter.log_progress() => match never {},
    };
    if exit == ServerExit::Stopped {
        serving.abort(); // a running transfer would not end in time
        let _ = (&mut serving).await;
        let _ = tokio::time::timeout(SUSPEND_TIMEOUT, app.uploads.suspend()).await;
    } else {
        let _ = ended.send(true); // `serving` ends on this
        (&mut serving).await.map_err(|error| Error::Serve(error.into()))?;
    }
    Ok(exit)
}

/// Returns after the deadline, once no transfer is running: what the volume holds, if it is complete by then.
async fn wait_for_deadline(deadline: Option<SystemTime>, app: &ServerState) -> Option<Completed> {
    let Some(deadline) = deadline else { return std::future::pending().await };
    // The system clock may be set, so it is read again each minute.
    while SystemTime::now() < deadline {
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
    }
    loop {
        // A client that lost its connection has the same time as a silent one. The next process resumes its upload.
        app.uploads.suspend_idle(app.client_silence_max).await;
        tokio::select! {
            completed = app.slot.until_idle() => return completed,
            () = tokio::time::sleep(IDLE_CHECK_INTERVAL) => {}
        }
    }
}

fn tls_config(settings: &Settings) -> Result<rustls::ServerConfig, Error> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| Error::File { path: path.clone(), source })
    };
    let (certificate, key) = (read(&settings.certificate)?, read(&settings.key)?);
    let authority = read(&settings.client_ca)?;
    auth::server_config(&certificate, &key, &authority, &settings.tls_minimum).map_err(Error::Tls)
}

/// The target, and its directory unless it is a device. A file at the destination is from a process that was killed.
fn open_volume(settings: &Settings) -> Result<(Target, Option<PathBuf>), Error> {
    let path = settings.destination.clone();
    let failed = |source| Error::Volume { path: path.clone(), source };
    let is_device = match path.symlink_metadata() {
        Ok(facts) if facts.file_type().is_block_device() => true,
        Ok(_) => {
            std::fs::remove_file(&path).map_err(failed)?;
            tracing::info!("removed {}, left by an earlier attempt", path.display());
            false
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    let free = ByteCount::new(pipeline::target::available(&path).map_err(failed)?);
    let volume = if is_device {
        Volume::Device { size: free }
    } else {
        Volume::Directory { available: free }
    };
    let fit = volume.fit(settings.image_size, settings.overhead);
    let preallocate = settings.preallocate;
    let directory = path.parent().filter(|_| !is_device).map(Path::to_owned);
    if let Some(directory) = &directory
        && let Err(error) = Staging::open(directory, false)
    {
        tracing::warn!(error = %runtime::chain(&error), "cannot remove the files of an earlier attempt");
    }
    let (available, grow_to) = (Some(fit.available), fit.grow_to);
    Ok((Target { path, available, grow_to, preallocate }, directory))
}
