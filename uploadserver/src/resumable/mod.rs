//! Resumable uploads: version 1.0.0 of the tus protocol, in addition to the paths of upstream CDI.
//!
//! ```text
//!   POST  …/upload-resumable       Upload-Length, Upload-Metadata   ► 201, Location: upload-resumable/ID (200: exists already)
//!   HEAD  …/upload-resumable/ID                                     ► 200, Upload-Offset
//!   PATCH …/upload-resumable/ID    Upload-Offset, bytes             ► 204, Upload-Offset
//! ```
//!
//! There is one upload at a time, because there is one volume. Its bytes are written as they arrive, like those of any
//! upload; after an interruption the pipeline waits for the next connection. The response to the last bytes is sent
//! when everything is durable. What survives the process is described in `disk_import`.

mod content_coding;
mod disk_import;
mod refusal;
mod request;
mod upload_record;
mod upload_source;
mod uploads;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::error::UploadError;
use crate::requests::{ServerState, authorize, drain_in_background};

use content_coding::ContentCoding;
use request::{EXTENSIONS, TusRequest, UploadRequest, check_version, header_names, parse_request};
use uploads::ResumableUpload;

pub use refusal::ResumableRefusal;
pub use uploads::ResumableUploads;

/// The uploads are below this path.
const PATH: &str = "/v1beta1/upload-resumable";

pub fn is_resumable(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Requires [`is_resumable`].
pub async fn handle_resumable(app: &Arc<ServerState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let below = parts.uri.path().strip_prefix(PATH).unwrap_or_default();
    let parsed = parse_request(&parts, below.strip_prefix('/'));
    let handled = match parsed {
        TusRequest::Append(id) => append_part(app, &parts, body, id).await,
        other => {
            drain_in_background(body);
            match other {
                TusRequest::Discover => Ok(discovery_response()),
                TusRequest::Create => create_upload(app, &parts).await,
                TusRequest::GetOffset(id) => get_offset(app, &parts, id).await,
                TusRequest::Append(_) | TusRequest::Unknown => Err(UploadError::Unknown),
            }
        }
    };
    let mut response = handled.unwrap_or_else(|error| {
        let offset = error.offset();
        let mut response = error.into_response();
        if let Some(offset) = offset {
            response.headers_mut().insert(header_names::OFFSET, offset.into());
        }
        response
    });
    let headers = response.headers_mut();
    headers.insert(header_names::VERSION, HeaderValue::from_static(request::VERSION));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // RFC 7694: supported codings of request bodies.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
    response
}

fn discovery_response() -> Response {
    let headers =
        [(header_names::VERSIONS, request::VERSION), (header_names::EXTENSION, EXTENSIONS)];
    (StatusCode::NO_CONTENT, headers).into_response()
}

async fn create_upload(
    app: &Arc<ServerState>,
    parts: &http::request::Parts,
) -> Result<Response, UploadError> {
    authorize(app, parts)?;
    check_version(&parts.headers)?;
    let request = UploadRequest::from_headers(&parts.headers)?;
    let (upload, is_new) = app.uploads.create(app, request).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    // Relative, because a proxy may add a prefix to the path.
    let location = format!("upload-resumable/{}", upload.id());
    Ok((status, [(header::LOCATION, location)]).into_response())
}

async fn get_offset(
    app: &Arc<ServerState>,
    parts: &http::request::Parts,
    id: &str,
) -> Result<Response, UploadError> {
    let upload = find_upload(app, parts, id).await?;
    let offset = upload.lease().await?.offset(app).await?;
    let headers = [
        (header_names::OFFSET, offset.to_string()),
        (header_names::LENGTH, upload.length().to_string()),
    ];
    Ok((StatusCode::OK, headers).into_response())
}

async fn append_part(
    app: &Arc<ServerState>,
    parts: &http::request::Parts,
    body: Body,
    id: &str,
) -> Result<Response, UploadError> {
    let checked = async {
        let upload = find_upload(app, parts, id).await?;
        let at = request::offset(&parts.headers)?;
        request::check_content(&parts.headers)?;
        let coding = ContentCoding::from_headers(&parts.headers)?;
        if let Some(digest) = request::digest(&parts.headers)? {
            upload.expect_checksum(digest)?;
        }
        Ok::<_, UploadError>((upload, at, coding))
    };
    let (upload, at, coding) = match checked.await {
        Ok(checked) => checked,
        Err(error) => {
            drain_in_background(body);
            return Err(error);
        }
    };
    let offset = receive_part(app, &upload, at, body, coding).await?;
    Ok((StatusCode::NO_CONTENT, [(header_names::OFFSET, offset.to_string())]).into_response())
}

/// Appends the body at offset `at`, and returns the offset of the next byte.
async fn receive_part(
    app: &Arc<ServerState>,
    upload: &ResumableUpload,
    at: u64,
    body: Body,
    coding: ContentCoding,
) -> Result<u64, UploadError> {
    let mut body = body;
    let received = append_body(app, upload, at, &mut body, coding).await;
    if received.is_err() {
        drain_in_background(body);
    }
    received
}

async fn append_body(
    app: &ServerState,
    upload: &ResumableUpload,
    at: u64,
    body: &mut Body,
    coding: ContentCoding,
) -> Result<u64, UploadError> {
    let mut lease = upload.lease().await?;
    let offset = lease.offset(app).await?;
    if offset != at {
        return Err(ResumableRefusal::Offset { offset }.into());
    }
    lease.append(body, coding, app.client_silence_max).await
}

async fn find_upload(
    app: &ServerState,
    parts: &http::request::Parts,
    id: &str,
) -> Result<Arc<ResumableUpload>, UploadError> {
    authorize(app, parts)?;
    check_version(&parts.headers)?;
    Ok(app.uploads.find(id).await.ok_or(ResumableRefusal::Unknown)?)
}
