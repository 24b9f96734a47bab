//! Node pull, the importer's end: what the server container reports about the image that the node has pulled.

use serde::Deserialize;
use url::Url;

use crate::error::Error;
use crate::secret::RedactedUrl;
use crate::web::{Agent, HttpOptions};

const ANSWER_LEN_MAX: u64 = 1 << 20;

#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    env: Vec<String>,
}

/// The environment of the image whose disk is at `disk`, as `KEY=VALUE`, fetched from the same server under `/info`.
///
/// # Errors
/// When the server cannot be reached, or its response is something else.
pub fn served_environment(disk: &str, options: &HttpOptions) -> Result<Vec<String>, Error> {
    let url = || RedactedUrl::of_text(disk);
    let info = Url::parse(disk)
        .and_then(|disk| disk.join("/info"))
        .map_err(|error| Error::Address { url: url(), because: error.to_string() })?;
    let answer = Agent::new(options)?.fetch(info, None, None, ANSWER_LEN_MAX)?;
    let info: Info = serde_json::from_slice(&answer.bytes).map_err(|_| Error::Answer {
        url: url(),
        because: "its description of the image is not readable".into(),
    })?;
    Ok(info.env)
}
