//! The first request: what there is, and how it can be read.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::answer::{self, ContentRange};
use super::client::{Client, GetRequest, show};
use super::redirect::RedirectTarget;
use super::retry::{Attempts, RetryPolicy};
use super::transport::{Body, Response};
use crate::error::Error;

/// Bytes that are requested first, and kept: all headers and first tables of an image.
pub(super) const HEAD_LEN: u64 = 256 << 10;

/// From the first response.
pub(super) struct ProbeResult {
    /// Bytes of the image.
    pub(super) length: Option<u64>,
    /// In the form of `If-Range`.
    pub(super) validator: Option<String>,
    /// What must not differ between two responses.
    pub(super) mark: Option<String>,
    /// Parts can be requested, and belong together.
    pub(super) ranges: bool,
    /// The image's first bytes, where they came alone.
    pub(super) head: Bytes,
    /// The whole image, in progress, where the server sends nothing less.
    pub(super) whole: Option<(Body, RedirectTarget)>,
}

/// Requests the first bytes and retries by `policy`. Never a `HEAD`: signed addresses are good for `GET` only, and
/// some servers forbid it.
pub(super) async fn probe(
    client: &Client,
    policy: &RetryPolicy,
    stall_timeout: Duration,
) -> Result<ProbeResult, Error> {
    let mut attempts = Attempts::new(policy);
    loop {
        match once(client, attempts.patience(stall_timeout)).await {
            Ok(found) => return Ok(found),
            Err(error) => attempts.wait_after(error, &client.name(), 0).await?,
        }
    }
}

async fn once(client: &Client, patience: Duration) -> Result<ProbeResult, Error> {
    let first = GetRequest { part: Some((0, HEAD_LEN)), ..GetRequest::default() };
    let (response, target) = client.get(&first, patience).await?;
    match response.status {
        StatusCode::PARTIAL_CONTENT => partial(response, &target).await,
        StatusCode::OK => whole(response, &target),
        StatusCode::RANGE_NOT_SATISFIABLE if is_empty(&response) => Ok(ProbeResult {
            length: Some(0),
            validator: answer::validator(&response.headers),
            mark: answer::mark(&response.headers),
            ranges: false,
            head: Bytes::new(),
            whole: None,
        }),
        // Some servers and gateways refuse a range in one of these ways, and send the whole when requested it.
        status if matches!(status.as_u16(), 400 | 403 | 405 | 406 | 412 | 416 | 501) => {
            let (response, target) = client.get(&GetRequest::default(), patience).await?;
            match response.status {
                StatusCode::OK => whole(response, &target),
                _ => Err(client.refusal(&response, &target)),
            }
        }
        _ => Err(client.refusal(&response, &target)),
    }
}

fn is_empty(response: &Response) -> bool {
    ContentRange::from_headers(&response.headers).is_some_and(|range| range.total == Some(0))
}

async fn partial(mut response: Response, target: &RedirectTarget) -> Result<ProbeResult, Error> {
    check(&response, target)?;
    let nonsense = |because: String| Error::Answer { url: show(target), because };
    let range = ContentRange::from_headers(&response.headers)
        .ok_or_else(|| nonsense("206 without a Content-Range".into()))?;
    let end = match range.part {
        Some((0, last)) if last < HEAD_LEN => last + 1,
        _ => return Err(nonsense("206 with another range than the requested one".into())),
    };
    let mut head = vec![0; usize::try_from(end).unwrap_or_default()]; // HEAD_LEN at most
    let mut filled = 0;
    while filled < head.len() {
        match response.body.read(&mut head[filled..]).await {
            Ok(count @ 1..) => filled += count,
            // The headers are complete. The missing bytes will be requested like any others.
            Ok(0) => break,
            Err(error) => {
                tracing::debug!("the first response broke after {filled} bytes: {error}");
                break;
            }
        }
    }
    head.truncate(filled);
    let validator = answer::validator(&response.headers);
    Ok(ProbeResult {
        length: range.total,
        ranges: range.total.is_some() && validator.is_some(),
        validator,
        mark: answer::mark(&response.headers),
        head: head.into(),
        whole: None,
    })
}

fn whole(response: Response, target: &RedirectTarget) -> Result<ProbeResult, Error> {
    check(&response, target)?;
    Ok(ProbeResult {
        length: answer::content_length(&response.headers),
        validator: answer::validator(&response.headers),
        mark: answer::mark(&response.headers),
        ranges: false,
        head: Bytes::new(),
        whole: Some((response.body, target.clone())),
    })
}

fn check(response: &Response, target: &RedirectTarget) -> Result<(), Error> {
    if let Some(kind) = answer::suspicious_content_type(&response.headers) {
        tracing::warn!("Unexpected content type '{kind}'. Content might not be a KubeVirt image.");
    }
    match answer::unknown_encoding(&response.headers) {
        None => Ok(()),
        Some(coding) => Err(Error::Answer {
            url: show(target),
            because: format!("it insists on the content encoding {coding:?}"),
        }),
    }
}
