//! Small responses as a whole: documents, not images.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::answer;
use super::client::{Client, GetRequest, show};
use super::retry::{Attempts, RetryPolicy};
use crate::error::{Error, TransportError};

/// What is requested, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchOptions {
    pub(super) accept: Option<&'static str>,
    /// A longer response is rejected.
    pub(super) len_max: u64,
}

#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// Requests, and retries by `policy`.
pub(super) async fn fetch(
    client: &Client,
    options: FetchOptions,
    policy: &RetryPolicy,
    stall_timeout: Duration,
) -> Result<Document, Error> {
    let mut attempts = Attempts::new(policy);
    loop {
        match once(client, options, attempts.patience(stall_timeout)).await {
            Ok(answer) => return Ok(answer),
            Err(error) => attempts.wait_after(error, &client.name(), 0).await?,
        }
    }
}

async fn once(
    client: &Client,
    options: FetchOptions,
    patience: Duration,
) -> Result<Document, Error> {
    const PIECE: usize = 16 << 10;
    let FetchOptions { accept, len_max } = options;
    let request = GetRequest { accept, ..GetRequest::default() };
    let (mut response, target) = client.get(&request, patience).await?;
    if response.status != StatusCode::OK {
        return Err(client.refusal(&response, &target));
    }
    let too_long = || Error::Answer {
        url: show(&target),
        because: format!("it is longer than {len_max} bytes"),
    };
    if answer::content_length(&response.headers).is_some_and(|length| length > len_max) {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        let read = response.body.read(&mut piece).await;
        match read
            .map_err(|source: TransportError| Error::Transport { url: show(&target), source })?
        {
            0 => return Ok(Document { headers: response.headers, bytes: bytes.into() }),
            count if (bytes.len() + count) as u64 > len_max => return Err(too_long()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
