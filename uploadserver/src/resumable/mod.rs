//! Uploads that go on after they broke off: version 1.0.0 of the tus protocol, beside the paths that upload servers have
//! always had.
//!
//! ```text
//! POST  …/upload-resumable       Upload-Length, Upload-Metadata   ► 201, Location: upload-resumable/ID (200: known already)
//! HEAD  …/upload-resumable/ID                                     ► 200, Upload-Offset
//! PATCH …/upload-resumable/ID    Upload-Offset, bytes             ► 204, Upload-Offset
//! ```
//!
//! There is one upload at a time, since there is one volume. Its bytes go where those of any other upload go, as they come;
//! a connection that breaks leaves the pipeline waiting for the next one. The answer to the last bytes comes when all of it
//! is durable. What it costs to lose the process as well is in `filling`.

mod coding;
mod filling;
mod inlet;
mod record;
mod refusal;
mod request;
mod uploads;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::error::UploadError;
use crate::upload::{App, authorize, put_away};

use coding::Coding;
use request::{Asked, EXTENSIONS, Wish, asked, check_version, names};
use uploads::Upload;

pub use refusal::Refusal;
pub use uploads::Uploads;

/// Below this path are the uploads, by their names.
const PATH: &str = "/v1beta1/upload-resumable";

/// Whether a path is the one of these uploads, or of one of them.
pub fn is_resumable(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for a path that [`is_resumable`].
pub async fn answer(app: &Arc<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let below = parts.uri.path().strip_prefix(PATH).unwrap_or_default();
    let asked = asked(&parts, below.strip_prefix('/'));
    let answered = match asked {
        Asked::Append(id) => append(app, &parts, body, id).await,
        other => {
            put_away(body);
            match other {
                Asked::Discover => Ok(discovered()),
                Asked::Create => create(app, &parts).await,
                Asked::Look(id) => look(app, &parts, id).await,
                Asked::Append(_) | Asked::Nothing => Err(UploadError::Unknown),
            }
        }
    };
    let mut answer = answered.unwrap_or_else(|error| {
        let offset = error.offset();
        let mut answer = error.into_response();
        if let Some(offset) = offset {
            answer.headers_mut().insert(names::OFFSET, offset.into());
        }
        answer
    });
    let headers = answer.headers_mut();
    headers.insert(names::VERSION, HeaderValue::from_static(request::VERSION));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // RFC 7694: what a body may be wrapped up in.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd"));
    answer
}

fn discovered() -> Response {
    let headers = [(names::VERSIONS, request::VERSION), (names::EXTENSION, EXTENSIONS)];
    (StatusCode::NO_CONTENT, headers).into_response()
}

async fn create(app: &Arc<App>, parts: &http::request::Parts) -> Result<Response, UploadError> {
    authorize(app, parts)?;
    check_version(&parts.headers)?;
    let wish = Wish::read(&parts.headers)?;
    let (upload, is_new) = app.uploads.create(app, wish).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    // Relative to the path of the request, whatever a proxy before this one has put before it.
    let location = format!("upload-resumable/{}", upload.id());
    Ok((status, [(header::LOCATION, location)]).into_response())
}

async fn look(
    app: &Arc<App>,
    parts: &http::request::Parts,
    id: &str,
) -> Result<Response, UploadError> {
    let upload = find(app, parts, id).await?;
    let offset = upload.turn().await?.offset(app).await?;
    let headers =
        [(names::OFFSET, offset.to_string()), (names::LENGTH, upload.length().to_string())];
    Ok((StatusCode::OK, headers).into_response())
}

async fn append(
    app: &Arc<App>,
    parts: &http::request::Parts,
    body: Body,
    id: &str,
) -> Result<Response, UploadError> {
    let begun = async {
        let upload = find(app, parts, id).await?;
        let at = request::offset(&parts.headers)?;
        request::check_content(&parts.headers)?;
        let coding = Coding::of(&parts.headers)?;
        if let Some(digest) = request::digest(&parts.headers)? {
            upload.expect(digest)?;
        }
        Ok::<_, UploadError>((upload, at, coding))
    };
    let (upload, at, coding) = match begun.await {
        Ok(begun) => begun,
        Err(error) => {
            put_away(body);
            return Err(error);
        }
    };
    let offset = take(app, &upload, at, body, coding).await?;
    Ok((StatusCode::NO_CONTENT, [(names::OFFSET, offset.to_string())]).into_response())
}

/// Takes the bytes from `at` on, and says where the next one belongs.
async fn take(
    app: &Arc<App>,
    upload: &Upload,
    at: u64,
    body: Body,
    coding: Coding,
) -> Result<u64, UploadError> {
    let mut body = body;
    let taken = bring_on(app, upload, at, &mut body, coding).await;
    if taken.is_err() {
        put_away(body);
    }
    taken
}

async fn bring_on(
    app: &App,
    upload: &Upload,
    at: u64,
    body: &mut Body,
    coding: Coding,
) -> Result<u64, UploadError> {
    let mut turn = upload.turn().await?;
    let offset = turn.offset(app).await?;
    if offset != at {
        return Err(Refusal::Offset { offset }.into());
    }
    turn.append(body, coding, app.client_silence_max).await
}

async fn find(
    app: &App,
    parts: &http::request::Parts,
    id: &str,
) -> Result<Arc<Upload>, UploadError> {
    authorize(app, parts)?;
    check_version(&parts.headers)?;
    Ok(app.uploads.find(id).await.ok_or(Refusal::Unknown)?)
}
