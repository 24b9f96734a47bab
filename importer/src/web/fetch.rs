//! Small answers as a whole: documents, not images.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::answer;
use super::client::{Client, Wanted, show};
use super::retry::{Attempts, RetryPolicy};
use crate::error::{Error, Trouble};

/// What is asked for, and how much of it is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) accept: Option<&'static str>,
    /// A longer answer is refused.
    pub(super) len_max: u64,
}

/// A document.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

/// Asks as patiently as `policy` says.
pub(super) async fn fetch(
    client: &Client,
    wish: Wish,
    policy: &RetryPolicy,
    stall_timeout: Duration,
) -> Result<Answer, Error> {
    let mut attempts = Attempts::new(policy);
    loop {
        match once(client, wish, attempts.patience(stall_timeout)).await {
            Ok(answer) => return Ok(answer),
            Err(error) => attempts.wait_after(error, &client.name(), 0).await?,
        }
    }
}

async fn once(client: &Client, wish: Wish, patience: Duration) -> Result<Answer, Error> {
    const PIECE: usize = 16 << 10;
    let Wish { accept, len_max } = wish;
    let wanted = Wanted { accept, ..Wanted::default() };
    let (mut response, place) = client.get(&wanted, patience).await?;
    if response.status != StatusCode::OK {
        return Err(client.refusal(&response, &place));
    }
    let too_long = || Error::Answer {
        url: show(&place),
        because: format!("it is longer than {len_max} bytes"),
    };
    if answer::content_length(&response.headers).is_some_and(|length| length > len_max) {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        let read = response.body.read(&mut piece).await;
        match read.map_err(|source: Trouble| Error::Transport { url: show(&place), source })? {
            0 => return Ok(Answer { headers: response.headers, bytes: bytes.into() }),
            count if (bytes.len() + count) as u64 > len_max => return Err(too_long()),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}
