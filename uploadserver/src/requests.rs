//! The handlers of all requests but those of resumable uploads.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use clonestream::offer::{self, StreamOffer};
use contract::upload::{COMPLETE_HEADER, PROXY_CLIENT_NAME};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pipeline::{Options, Progress, Source, SourceFormat, Target, UnpackOptions};
use runtime::https::drain;
use runtime::metrics::TEXT_FORMAT;
use runtime::sandbox::sandbox_metrics;

use crate::body::{BodyStream, SinglePassSource, body_stream};
use crate::clone_body::{CloneContent, DiskInTar, SnappyDecoder};
use crate::error::UploadError;
use crate::extents::{self, CloneVolume, InterruptedClone};
use crate::multipart::{self, FilePart};
use crate::resumable::{self, ResumableUploads};
use crate::route::{BodyFormat, UploadRoute, route_request};
use crate::upload_meter::UploadMeter;
use crate::volume_slot::{Completed, VolumeLease, VolumeSlot};

/// Request header of a clone's source.
const CONTENT: &str = "x-cdi-content-type";
const COMPLETE: HeaderName = HeaderName::from_static(COMPLETE_HEADER);
/// Of a rejected body, this much is read after the response, or for this long.
const DRAIN_BYTES_MAX: u64 = 64 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct ServerState {
    /// Of the only client that may send a body.
    pub client_name: String,
    pub target: Target,
    pub format: SourceFormat,
    /// `None`: the target is a device.
    pub directory: Option<PathBuf>,
    pub client_silence_max: Duration,
    /// Which transfer may write.
    pub slot: VolumeSlot,
    pub interrupted_clone: InterruptedClone,
    pub uploads: ResumableUploads,
    pub meter: UploadMeter,
}

/// Common name of the client certificate. The TLS layer adds it to each request.
#[derive(Clone, Debug)]
pub struct Client(pub Option<String>);

/// The role of the only client that this server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientRole {
    /// The upload proxy, acting for the holder of an upload token.
    UploadClient,
    /// The pod that reads the source of a clone.
    CloneSource,
}

impl ClientRole {
    fn of_client_name(client_name: &str) -> Self {
        if client_name == PROXY_CLIENT_NAME { Self::UploadClient } else { Self::CloneSource }
    }
}

/// What a body contains.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BodyContent {
    Image,
    /// An image in a form.
    Form {
        boundary: Vec<u8>,
    },
    /// A tar of files.
    Archive,
    /// A snappy stream of another volume.
    Clone(CloneContent),
    /// An extent stream of another volume.
    Extents {
        files: bool,
    },
}

pub async fn handle_request(State(app): State<Arc<ServerState>>, request: Request) -> Response {
    let mut response = respond(&app, request).await;
    if app.slot.is_complete() {
        response.headers_mut().insert(COMPLETE, HeaderValue::from_static("true"));
    }
    response
}

async fn respond(app: &Arc<ServerState>, request: Request) -> Response {
    match route_request(request.method(), request.uri().path()) {
        UploadRoute::Health => "OK".into_response(),
        UploadRoute::Metrics => {
            ([(header::CONTENT_TYPE, TEXT_FORMAT)], app.meter.page() + &sandbox_metrics())
                .into_response()
        }
        UploadRoute::Probe => StatusCode::OK.into_response(),
        UploadRoute::Offer => match handle_offer(app, request).await {
            Ok(offer) => [(offer::HEADER, offer.to_string())].into_response(),
            Err(error) => error.into_response(),
        },
        UploadRoute::Resumable => resumable::handle_resumable(app, request).await,
        UploadRoute::Unknown => {
            drain_in_background(request.into_body());
            UploadError::Unknown.into_response()
        }
        UploadRoute::Upload { body, is_async } => {
            match handle_upload(app, request, body, is_async).await {
                Ok(()) => StatusCode::OK.into_response(),
                Err(error) => error.into_response(),
            }
        }
    }
}

/// Writes the body to the volume. Returns once that is durable.
///
/// The pipeline runs on its own thread, fed by a pump. If the pipeline ends early, the pump drains the body, so that a
/// client that is still sending gets the response. If the client disconnects, the pipeline keeps the lease until it
/// notices, so that no other transfer writes meanwhile.
async fn handle_upload(
    app: &Arc<ServerState>,
    request: Request,
    format: BodyFormat,
    is_async: bool,
) -> Result<(), UploadError> {
    let (parts, body) = request.into_parts();
    let admitted = acquire_volume(app, &parts).await;
    let role = ClientRole::of_client_name(&app.client_name);
    let admitted = admitted
        .and_then(|lease| Ok((lease, classify_body(&parts.headers, format, is_async, role)?)));
    let (lease, content) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            drain_in_background(body);
            return Err(error);
        }
    };
    let (stream, pump) = body_stream(app.client_silence_max);
    let length = body.size_hint().exact();
    tokio::spawn(pump.pump_body(body.into_data_stream()));
    let app = Arc::clone(app);
    let transfer = tokio::task::spawn_blocking(move || {
        let progress = app.meter.start_transfer();
        let completed = write_volume(&app, content, stream, length, &progress)?;
        lease.complete(completed);
        Ok(())
    });
    transfer.await.map_err(|_| UploadError::Panicked)?
}

/// The offer of an extent stream, for a clone source.
async fn handle_offer(app: &ServerState, request: Request) -> Result<StreamOffer, UploadError> {
    let (parts, _) = request.into_parts();
    let lease = acquire_volume(app, &parts).await?;
    if ClientRole::of_client_name(&app.client_name) != ClientRole::CloneSource {
        return Err(UploadError::NoCloneSource);
    }
    drop(lease);
    Ok(app.interrupted_clone.offer())
}

/// Checks the client, suspends an idle resumable upload, and leases the volume.
async fn acquire_volume(app: &ServerState, parts: &Parts) -> Result<VolumeLease, UploadError> {
    authorize(app, parts)?;
    app.uploads.discard_idle().await?;
    app.slot.acquire().map_err(UploadError::SlotUnavailable)
}

/// [`UploadError::Unauthorized`] unless it is the expected client.
pub fn authorize(app: &ServerState, parts: &Parts) -> Result<(), UploadError> {
    let client = parts.extensions.get::<Client>().and_then(|client| client.0.as_deref());
    if client == Some(app.client_name.as_str()) { Ok(()) } else { Err(UploadError::Unauthorized) }
}

/// A client that is still sending would not see a response on a closed connection.
pub fn drain_in_background(body: Body) {
    tokio::spawn(drain(body, DRAIN_BYTES_MAX, DRAIN_TIME_MAX));
}

/// Only a clone source may send a clone: its size is not limited by what the PVC requests, and it is reported as
/// [`Completed::cloned`].
fn classify_body(
    headers: &HeaderMap,
    body: BodyFormat,
    is_async: bool,
    role: ClientRole,
) -> Result<BodyContent, UploadError> {
    let cloned = headers.get(CONTENT).and_then(|value| CloneContent::from_header(value.as_bytes()));
    if role == ClientRole::UploadClient && (cloned.is_some() || body == BodyFormat::Extents) {
        return Err(UploadError::NoCloneSource);
    }
    match (body, cloned) {
        (BodyFormat::Archive, _) => Ok(BodyContent::Archive),
        (BodyFormat::Extents, content) => {
            Ok(BodyContent::Extents { files: content == Some(CloneContent::Files) })
        }
        (_, Some(_)) if is_async => Err(UploadError::AsyncClone),
        (BodyFormat::Image, Some(content)) => Ok(BodyContent::Clone(content)),
        (BodyFormat::Image, None) => Ok(BodyContent::Image),
        (BodyFormat::Form, _) => {
            let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let boundary = multipart::boundary(kind.unwrap_or_default())?;
            Ok(BodyContent::Form { boundary })
        }
    }
}

fn write_volume(
    app: &ServerState,
    content: BodyContent,
    body: BodyStream,
    length: Option<u64>,
    progress: &Arc<Progress>,
) -> Result<Completed, UploadError> {
    let cloned = matches!(content, BodyContent::Clone(_) | BodyContent::Extents { .. });
    if !matches!(content, BodyContent::Extents { .. }) {
        app.interrupted_clone.discard();
    }
    // A clone has the size of its source, whatever its PVC requests.
    let as_source = || Target { available: None, grow_to: None, ..app.target.clone() };
    let image = || Options { format: app.format, ..single_pass_options() };
    let preallocated = match content {
        BodyContent::Image => {
            import_disk(&SinglePassSource::image(body, length), &app.target, &image(), progress)?
        }
        BodyContent::Form { boundary } => {
            let part = FilePart::find(body, &boundary)?;
            import_disk(&SinglePassSource::image(part, None), &app.target, &image(), progress)?
        }
        BodyContent::Archive => {
            unpack_archive(app, &SinglePassSource::image(body, length), progress)?;
            false // preallocation is about disks
        }
        BodyContent::Extents { files } => {
            let volume = CloneVolume { target: &app.target, directory: app.directory.as_deref() };
            extents::receive_clone(&app.interrupted_clone, &volume, body, progress)?;
            files && app.directory.is_some() // as upstream reports clones of files
        }
        BodyContent::Clone(CloneContent::Disk) => {
            import_disk(
                &SinglePassSource::disk(SnappyDecoder::new(body), None),
                &as_source(),
                &single_pass_options(),
                progress,
            )?;
            false // upstream reports it for the source
        }
        BodyContent::Clone(CloneContent::Files) if app.directory.is_some() => {
            unpack_archive(app, &SinglePassSource::disk(SnappyDecoder::new(body), None), progress)?;
            true // as upstream reports clones of files
        }
        BodyContent::Clone(CloneContent::Files) => {
            let disk = DiskInTar::find(SnappyDecoder::new(body)).map_err(UploadError::Tar)?;
            let disk = disk.ok_or(UploadError::NoDisk)?;
            let length = Some(disk.length());
            import_disk(
                &SinglePassSource::disk(disk, length),
                &as_source(),
                &single_pass_options(),
                progress,
            )?;
            false
        }
    };
    Ok(Completed { cloned, preallocated })
}

/// A body of a single request cannot be resumed.
fn single_pass_options() -> Options {
    Options { resume: false, ..Options::default() }
}

/// Returns whether all blocks were allocated.
pub fn import_disk(
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
        "wrote a disk of {} bytes from {} by route {} in {:.1} s",
        report.virtual_size,
        report.format,
        report.route,
        report.seconds,
    );
    Ok(target.preallocate)
}

fn unpack_archive(
    app: &ServerState,
    source: &SinglePassSource,
    progress: &Arc<Progress>,
) -> Result<(), UploadError> {
    let directory = app.directory.as_ref().ok_or(UploadError::NoFolder)?;
    let preallocate = app.target.preallocate;
    let options = UnpackOptions { preallocate, ..UnpackOptions::default() };
    let unpacked =
        pipeline::unpack(source, directory, &options, progress).map_err(UploadError::Import)?;
    tracing::info!(
        upload.read_bytes = unpacked.bytes_read,
        upload.written_bytes = unpacked.bytes_written,
        "unpacked {} files and {} directories in {:.1} s",
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
    fn body_content_decision_table() {
        use BodyFormat::{Archive, Extents, Form, Image};
        let (form, disk, files) =
            ("multipart/form-data; boundary=b", "blockdevice-clone", "filesystem-clone");
        let boundary = b"b".to_vec();
        let table = [
            (Image, false, "", "", Ok(BodyContent::Image)),
            (Image, true, "", "", Ok(BodyContent::Image)),
            (Image, false, form, "kubevirt", Ok(BodyContent::Image)),
            (Image, false, "", disk, Ok(BodyContent::Clone(CloneContent::Disk))),
            (Image, false, "", files, Ok(BodyContent::Clone(CloneContent::Files))),
            (Image, true, "", disk, Err(500)),
            (Form, false, form, "", Ok(BodyContent::Form { boundary })),
            (Form, true, form, files, Err(500)),
            (Form, false, "text/plain", "", Err(400)),
            (Archive, false, "", disk, Ok(BodyContent::Archive)),
            (Extents, false, "", disk, Ok(BodyContent::Extents { files: false })),
            (Extents, false, "", files, Ok(BodyContent::Extents { files: true })),
        ];
        for (body, is_async, kind, content, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            headers.insert(CONTENT, content.parse().unwrap());
            let status = |error: UploadError| error.status().as_u16();
            let found =
                classify_body(&headers, body, is_async, ClientRole::CloneSource).map_err(status);
            assert_eq!(found, expected, "{body:?} {is_async} {kind} {content}");
            let is_clone = [disk, files].contains(&content) || body == Extents;
            let found =
                classify_body(&headers, body, is_async, ClientRole::UploadClient).map_err(status);
            let expected = if is_clone { Err(403) } else { expected };
            assert_eq!(found, expected, "by an upload: {body:?} {is_async} {kind} {content}");
        }
    }

    #[test]
    fn upload_proxy_is_not_a_clone_source() {
        assert_eq!(ClientRole::of_client_name(PROXY_CLIENT_NAME), ClientRole::UploadClient);
        assert_eq!(ClientRole::of_client_name("images/golden-vms/disk"), ClientRole::CloneSource);
    }
}
