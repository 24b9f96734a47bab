//! The HTTP end of one upload or clone, beside the volume that it fills.
//!
//! A client with the right certificate sends an image, an archive or another volume; [`pipeline`] turns it into the disk, or
//! unpacks it, as it comes, whatever its format, without scratch space; the answer is 200 once all of it is durable, and
//! marked as such. After that the process ends; one that was killed before that is followed by one that ends at once. A
//! transfer that fails leaves the volume unfinished and the process ready for another try.

#![allow(missing_docs)] // documented is what the signature does not say

mod body;
mod clone;
mod error;
mod extents;
mod form;
mod mark;
mod meter;
mod resumable;
mod route;
mod settings;
mod slot;
mod upload;

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use contract::job::ExitMessage;
use contract::{ByteCount, Volume};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use pipeline::{Staging, Target};
use runtime::https::{self, Limits};
use tokio::sync::watch;
use tower_service::Service;

use extents::Half;
use mark::Mark;
use meter::Meter;
use resumable::Uploads;
use slot::Slot;
use upload::{App, Client, answer};

pub use settings::Settings;
pub use slot::Completed;

/// How often an idle upload is looked at, once certificates have had their time.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long what waits for more of an upload may take to end.
const FAREWELL: Duration = Duration::from_secs(10);

/// How a process ends that was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The volume is complete.
    Complete(Completed),
    /// The certificates have had their time, and nobody was at it.
    DeadlinePassed,
    /// Somebody asked for it.
    Stopped,
}

impl End {
    /// What the controller reads of it.
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

/// Why a process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that has to be there.
    #[error("invalid TLS config: cannot read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Its files are there, and cannot be used.
    #[error("invalid TLS config")]
    Tls(#[source] auth::Error),
    /// The volume.
    #[error("cannot see how much room {} has", path.display())]
    Volume {
        /// Where it is.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The network.
    #[error("cannot serve")]
    Serve(#[source] io::Error),
}

/// Serves at `listener` until the volume is complete, the deadline has passed, or `stop` ends. Does not begin where an earlier
/// process has completed the volume and did not live to say so: what is there is not touched.
///
/// # Errors
/// See [`Error`].
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<End, Error> {
    let mark = Mark::of(&settings.journal, &settings.owner_uid);
    if let Some(completed) = mark.read() {
        tracing::info!(
            "an earlier process has completed the volume, and was ended before it could say so"
        );
        return Ok(End::Complete(completed));
    }
    let tls = tls(&settings)?;
    let (target, folder) = volume(&settings)?;
    let uploads = Uploads::new(&target.path, folder.is_some(), settings.checkpoint_every);
    let app = Arc::new(App {
        client_name: settings.client_name,
        target,
        format: settings.format,
        folder,
        client_silence_max: settings.client_silence_max,
        slot: Slot::new(mark),
        half: Half::default(),
        uploads,
        meter: Meter::new(&settings.owner_uid),
    });
    listener.set_nonblocking(true).map_err(Error::Serve)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::Serve)?;
    let address = listener.local_addr().map_err(Error::Serve)?;
    tracing::info!("an upload by {} is expected at {address}", app.client_name);
    let (ended, end) = watch::channel(false);
    let tls = Arc::new(tls);
    let router = Router::new().fallback(answer).with_state(Arc::clone(&app));
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
    let how = tokio::select! {
        completed = app.slot.done() => End::Complete(completed),
        completed = deadline(settings.deadline, &app) => {
            completed.map_or(End::DeadlinePassed, End::Complete)
        }
        () = stop => End::Stopped,
        never = app.meter.log() => match never {},
    };
    if how == End::Stopped {
        serving.abort(); // no transfer that runs would end in time
        let _ = (&mut serving).await;
        let _ = tokio::time::timeout(FAREWELL, app.uploads.close()).await;
    } else {
        let _ = ended.send(true); // it waits for that
        (&mut serving).await.map_err(|error| Error::Serve(error.into()))?;
    }
    Ok(how)
}

/// Ends after the deadline, once nobody is at it: with what the volume holds, if it is complete then.
async fn deadline(deadline: Option<SystemTime>, app: &App) -> Option<Completed> {
    let Some(deadline) = deadline else { return std::future::pending().await };
    // The clock of the wall may be set, so it is looked at again and again.
    while SystemTime::now() < deadline {
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
    }
    loop {
        // A client whose connection broke is waited for as one is that says nothing; the next process goes on with it.
        app.uploads.rest(app.client_silence_max).await;
        tokio::select! {
            completed = app.slot.quiet() => return completed,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

fn tls(settings: &Settings) -> Result<rustls::ServerConfig, Error> {
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|source| Error::File { path: path.clone(), source })
    };
    let (certificate, key) = (read(&settings.certificate)?, read(&settings.key)?);
    let authority = read(&settings.client_ca)?;
    auth::server_config(&certificate, &key, &authority, &settings.tls_minimum).map_err(Error::Tls)
}

/// What is to be filled, and the folder of its files if it has one. What is at the destination that is no device is of an
/// earlier attempt, which was killed.
fn volume(settings: &Settings) -> Result<(Target, Option<PathBuf>), Error> {
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
    let room = ByteCount::new(pipeline::target::available(&path).map_err(failed)?);
    let volume = match is_device {
        true => Volume::Device { size: room },
        false => Volume::Folder { available: room },
    };
    let fit = volume.fit(settings.image_size, settings.overhead);
    let preallocate = settings.preallocate;
    let folder = path.parent().filter(|_| !is_device).map(Path::to_owned);
    if let Some(folder) = &folder
        && let Err(error) = Staging::open(folder, false)
    {
        tracing::warn!("cannot tidy up what an attempt has left: {}", runtime::chain(&error));
    }
    let (available, grow_to) = (Some(fit.available), fit.grow_to);
    Ok((Target { path, available, grow_to, preallocate }, folder))
}
