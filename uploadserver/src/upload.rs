//! One upload, from its first byte to its answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use clonestream::offer::{self, Offer};
use contract::upload::PROXY_CLIENT_NAME;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use pipeline::{Options, Progress, Source, SourceFormat, Target, UnpackOptions};
use runtime::https::drain;
use runtime::metrics::TEXT_FORMAT;
use runtime::sandbox::sandbox_metrics;

use crate::body::{BodyStream, Once, body_stream};
use crate::clone::{CloneContent, DiskInTar, Unframed};
use crate::error::UploadError;
use crate::extents::{self, Half, Volume};
use crate::form::{self, FilePart};
use crate::meter::Meter;
use crate::resumable::{self, Uploads};
use crate::route::{Route, Wrapping, route};
use crate::slot::{Claim, Completed, Slot};

/// By this header a clone's source says what it sends.
const CONTENT: &str = "x-cdi-content-type";
/// As much of a body that nobody may send is read after the answer, or for as long.
const DRAIN_BYTES_MAX: u64 = 64 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

/// What the requests of one process have in common.
#[derive(Debug)]
pub struct App {
    /// The common name that a client has to have.
    pub client_name: String,
    /// The volume.
    pub target: Target,
    /// How the format of an image is determined.
    pub format: SourceFormat,
    /// Where its files are, if it is no device.
    pub folder: Option<PathBuf>,
    /// How long a client may say nothing.
    pub client_silence_max: Duration,
    /// Who is at it.
    pub slot: Slot,
    /// What there is of a clone that broke off.
    pub half: Half,
    /// What can be gone on with.
    pub uploads: Uploads,
    /// How far.
    pub meter: Meter,
}

/// The common name that the client has proved, put beside each request by the TLS layer.
#[derive(Clone, Debug)]
pub struct Client(pub Option<String>);

/// Who the one client is that this server takes a body from, by its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// The upload proxy, for the holder of an upload token.
    UploadClient,
    /// The pod that reads the source of a clone.
    CloneSource,
}

impl Sender {
    fn of(client_name: &str) -> Self {
        if client_name == PROXY_CLIENT_NAME { Self::UploadClient } else { Self::CloneSource }
    }
}

/// What is to be done with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// It is an image.
    Image,
    /// An image is in it.
    Form { boundary: Vec<u8> },
    /// It is a tar of files.
    Archive,
    /// It comes from another volume.
    Clone(CloneContent),
    /// The same, without what is zero.
    Extents {
        /// The source is a file system.
        files: bool,
    },
}

/// Answers a request.
pub async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    match route(request.method(), request.uri().path()) {
        Route::Health => "OK".into_response(),
        Route::Metrics => {
            ([(header::CONTENT_TYPE, TEXT_FORMAT)], app.meter.page() + &sandbox_metrics())
                .into_response()
        }
        Route::Probe => StatusCode::OK.into_response(),
        Route::Offer => match offer(&app, request).await {
            Ok(offer) => [(offer::HEADER, offer.to_string())].into_response(),
            Err(error) => error.into_response(),
        },
        Route::Resumable => resumable::answer(&app, request).await,
        Route::Unknown => {
            put_away(request.into_body());
            UploadError::Unknown.into_response()
        }
        Route::Upload { body, is_async } => match upload(&app, request, body, is_async).await {
            Ok(()) => StatusCode::OK.into_response(),
            Err(error) => error.into_response(),
        },
    }
}

/// The body becomes the content of the volume. Returns once that is durable.
///
/// The pipeline runs on a thread of its own, fed by a pump. The pump goes on after an early end of the pipeline, so that
/// the answer gets through to a client that is still sending; and the pipeline goes on after a hang-up until it notices,
/// keeping its claim: nobody else may write meanwhile.
async fn upload(
    app: &Arc<App>,
    request: Request,
    wrapping: Wrapping,
    is_async: bool,
) -> Result<(), UploadError> {
    let (parts, body) = request.into_parts();
    let admitted = admit(app, &parts).await;
    let sender = Sender::of(&app.client_name);
    let admitted =
        admitted.and_then(|claim| Ok((claim, work(&parts.headers, wrapping, is_async, sender)?)));
    let (claim, work) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            put_away(body);
            return Err(error);
        }
    };
    let (stream, pump) = body_stream(app.client_silence_max);
    let length = body.size_hint().exact();
    tokio::spawn(pump.run(body.into_data_stream()));
    let app = Arc::clone(app);
    let filling = tokio::task::spawn_blocking(move || {
        let progress = app.meter.begin();
        let completed = fill(&app, work, stream, length, &progress)?;
        claim.finish(completed);
        Ok(())
    });
    filling.await.map_err(|_| UploadError::Lost)?
}

/// What the source of a clone is told, if it is the one that may send.
async fn offer(app: &App, request: Request) -> Result<Offer, UploadError> {
    let (parts, _) = request.into_parts();
    let claim = admit(app, &parts).await?;
    if Sender::of(&app.client_name) != Sender::CloneSource {
        return Err(UploadError::NoCloneSource);
    }
    drop(claim);
    Ok(app.half.offer())
}

/// The right to fill the volume, for the one client that has it and while nobody else does.
async fn admit(app: &App, parts: &Parts) -> Result<Claim, UploadError> {
    authorize(app, parts)?;
    app.uploads.give_way().await?;
    app.slot.claim().map_err(UploadError::Taken)
}

/// # Errors
/// When it is not the one client that may upload.
pub fn authorize(app: &App, parts: &Parts) -> Result<(), UploadError> {
    let client = parts.extensions.get::<Client>().and_then(|client| client.0.as_deref());
    match client == Some(app.client_name.as_str()) {
        true => Ok(()),
        false => Err(UploadError::Unauthorized),
    }
}

/// A client that is still sending would not see an answer on a connection that is cut.
pub fn put_away(body: Body) {
    tokio::spawn(drain(body, DRAIN_BYTES_MAX, DRAIN_TIME_MAX));
}

/// What the path and the headers ask for. A clone is not bounded by the size that the volume requests, and ends as
/// [`Completed::cloned`], so only a clone source may send one.
fn work(
    headers: &HeaderMap,
    body: Wrapping,
    is_async: bool,
    sender: Sender,
) -> Result<Work, UploadError> {
    let cloned = headers.get(CONTENT).and_then(|value| CloneContent::of(value.as_bytes()));
    if sender == Sender::UploadClient && (cloned.is_some() || body == Wrapping::Extents) {
        return Err(UploadError::NoCloneSource);
    }
    match (body, cloned) {
        (Wrapping::Archive, _) => Ok(Work::Archive),
        (Wrapping::Extents, content) => {
            Ok(Work::Extents { files: content == Some(CloneContent::Files) })
        }
        (_, Some(_)) if is_async => Err(UploadError::AsyncClone),
        (Wrapping::Image, Some(content)) => Ok(Work::Clone(content)),
        (Wrapping::Image, None) => Ok(Work::Image),
        (Wrapping::Form, _) => {
            let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let boundary = form::boundary(kind.unwrap_or_default())?;
            Ok(Work::Form { boundary })
        }
    }
}

fn fill(
    app: &App,
    work: Work,
    body: BodyStream,
    length: Option<u64>,
    progress: &Arc<Progress>,
) -> Result<Completed, UploadError> {
    let cloned = matches!(work, Work::Clone(_) | Work::Extents { .. });
    if !matches!(work, Work::Extents { .. }) {
        app.half.forget();
    }
    // A clone is as large as its source, whatever its claim asks for.
    let as_source = || Target { available: None, grow_to: None, ..app.target.clone() };
    let image = || Options { format: app.format, ..once() };
    let preallocated = match work {
        Work::Image => import(&Once::image(body, length), &app.target, &image(), progress)?,
        Work::Form { boundary } => {
            let part = FilePart::find(body, &boundary)?;
            import(&Once::image(part, None), &app.target, &image(), progress)?
        }
        Work::Archive => {
            unpack(app, &Once::image(body, length), progress)?;
            false // the annotation is about a disk, and here is none
        }
        Work::Extents { files } => {
            let volume = Volume { target: &app.target, folder: app.folder.as_deref() };
            extents::receive(&app.half, &volume, body, progress)?;
            files && app.folder.is_some() // by contract, as for the streams below
        }
        Work::Clone(CloneContent::Disk) => {
            import(&Once::disk(Unframed::new(body), None), &as_source(), &once(), progress)?;
            false // by contract: the source says it
        }
        Work::Clone(CloneContent::Files) if app.folder.is_some() => {
            unpack(app, &Once::disk(Unframed::new(body), None), progress)?;
            true // by contract as well
        }
        Work::Clone(CloneContent::Files) => {
            let disk = DiskInTar::find(Unframed::new(body)).map_err(UploadError::Tar)?;
            let disk = disk.ok_or(UploadError::NoDisk)?;
            let length = Some(disk.length());
            import(&Once::disk(disk, length), &as_source(), &once(), progress)?;
            false
        }
    };
    Ok(Completed { cloned, preallocated })
}

/// What comes in one request cannot be gone on with.
fn once() -> Options {
    Options { resume: false, ..Options::default() }
}

/// Returns whether every byte has its room.
pub fn import(
    source: &dyn Source,
    target: &Target,
    options: &Options,
    progress: &Arc<Progress>,
) -> Result<bool, UploadError> {
    let report =
        pipeline::import(source, target, options, progress).map_err(UploadError::Import)?;
    tracing::info!(
        upload.read_bytes = report.bytes_read,
        upload.written_bytes = report.bytes_written,
        "the upload is durable: a disk of {} bytes out of {} by way of {}, in {:.1} s",
        report.virtual_size,
        report.format,
        report.route,
        report.seconds,
    );
    Ok(target.preallocate)
}

/// The same for files.
fn unpack(app: &App, source: &Once, progress: &Arc<Progress>) -> Result<(), UploadError> {
    let folder = app.folder.as_ref().ok_or(UploadError::NoFolder)?;
    let preallocate = app.target.preallocate;
    let options = UnpackOptions { preallocate, ..UnpackOptions::default() };
    let unpacked =
        pipeline::unpack(source, folder, &options, progress).map_err(UploadError::Import)?;
    tracing::info!(
        upload.read_bytes = unpacked.bytes_read,
        upload.written_bytes = unpacked.bytes_written,
        "the upload is durable: {} files and {} folders, in {:.1} s",
        unpacked.files,
        unpacked.folders,
        unpacked.seconds,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_headers_tell_what_a_body_is() {
        use Wrapping::{Archive, Extents, Form, Image};
        let (form, disk, files) =
            ("multipart/form-data; boundary=b", "blockdevice-clone", "filesystem-clone");
        let boundary = b"b".to_vec();
        let table = [
            (Image, false, "", "", Ok(Work::Image)),
            (Image, true, "", "", Ok(Work::Image)),
            (Image, false, form, "kubevirt", Ok(Work::Image)),
            (Image, false, "", disk, Ok(Work::Clone(CloneContent::Disk))),
            (Image, false, "", files, Ok(Work::Clone(CloneContent::Files))),
            (Image, true, "", disk, Err(500)),
            (Form, false, form, "", Ok(Work::Form { boundary })),
            (Form, true, form, files, Err(500)),
            (Form, false, "text/plain", "", Err(400)),
            (Archive, false, "", disk, Ok(Work::Archive)),
            (Extents, false, "", disk, Ok(Work::Extents { files: false })),
            (Extents, false, "", files, Ok(Work::Extents { files: true })),
        ];
        for (body, is_async, kind, content, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            headers.insert(CONTENT, content.parse().unwrap());
            let status = |error: UploadError| error.status().as_u16();
            let found = work(&headers, body, is_async, Sender::CloneSource).map_err(status);
            assert_eq!(found, expected, "{body:?} {is_async} {kind} {content}");
            let is_clone = [disk, files].contains(&content) || body == Extents;
            let found = work(&headers, body, is_async, Sender::UploadClient).map_err(status);
            let expected = if is_clone { Err(403) } else { expected };
            assert_eq!(found, expected, "by an upload: {body:?} {is_async} {kind} {content}");
        }
    }

    #[test]
    fn the_name_of_the_upload_proxy_is_no_clone_source() {
        assert_eq!(Sender::of(PROXY_CLIENT_NAME), Sender::UploadClient);
        assert_eq!(Sender::of("images/golden-vms/disk"), Sender::CloneSource);
    }
}
