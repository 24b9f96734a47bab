//! Glance, version 2 of its interface: what an image is, and its bytes.

use std::sync::Arc;

use contract::Checksum;
use pipeline::{ByteStream, Extent, Source, SourceError, SourceFacts};
use serde::Deserialize;

use super::Opened;
use super::keystone::{ANSWER_MAX, Session, extend, refusal};
use crate::error::Error;
use crate::secret::RedactedUrl;
use crate::web::call::{Call, Caller};
use crate::web::{ExtraHeader, HttpOptions, HttpSource};

/// As its interface shows an image.
#[derive(Default, Deserialize)]
struct Image {
    #[serde(default)]
    status: String,
    disk_format: Option<String>,
    os_hash_algo: Option<String>,
    os_hash_value: Option<String>,
    /// MD5, of images that are older than other hashes.
    checksum: Option<String>,
}

impl Image {
    /// What its bytes hash to, by an algorithm that is known here.
    fn checksum(&self) -> Option<Checksum> {
        let named =
            || Some(format!("{}:{}", self.os_hash_algo.as_ref()?, self.os_hash_value.as_ref()?));
        let md5 = || Some(format!("md5:{}", self.checksum.as_ref()?));
        named().and_then(|text| text.parse().ok()).or_else(|| md5()?.parse().ok())
    }
}

/// Opens the image with that id.
pub(super) fn open(
    caller: &Caller,
    session: &Session,
    id: &str,
    http: HttpOptions,
) -> Result<Opened, Error> {
    let mut url = session.images.clone();
    extend(&mut url, "v2", &["images", id]);
    let token = session.token.reveal().to_owned();
    let answer = caller.call(Call {
        method: "GET",
        url: &url,
        headers: &[("accept", "application/json".into()), ("x-auth-token", token.clone())],
        body: Vec::new(),
        answer_max: ANSWER_MAX,
    })?;
    if answer.status != 200 {
        return Err(refusal(&url, &answer));
    }
    let image: Image = serde_json::from_slice(&answer.body).map_err(|_| Error::Answer {
        url: RedactedUrl::from(&url),
        because: "its description of the image is not readable".into(),
    })?;
    if image.status != "active" {
        let because = format!("the image is not active, but {:?}", image.status);
        return Err(Error::Refused { url: RedactedUrl::from(&url), because });
    }
    if let Some(format) = image.disk_format.as_deref().filter(|format| !is_plain(format)) {
        tracing::warn!("the image is of the format {format:?}, and is copied as it is");
    }
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.push("file");
    }
    let header = ExtraHeader { name: "X-Auth-Token".into(), value: token, secret: true };
    let http = HttpOptions { headers: vec![header], ..http };
    // The bytes of an active image never change.
    let bytes = HttpSource::connect_unchanging(url.as_str(), &http)?;
    let checksum = image.checksum();
    let validator = checksum.map(|checksum| checksum.to_string());
    let facts = SourceFacts { name: format!("image {id}"), validator, ..bytes.facts().clone() };
    Ok(Opened { source: Arc::new(GlanceSource { facts, bytes }), checksum })
}

fn is_plain(format: &str) -> bool {
    matches!(format, "raw" | "iso")
}

/// The bytes of an image, which are a disk whatever they look like.
struct GlanceSource {
    facts: SourceFacts,
    bytes: HttpSource,
}

impl Source for GlanceSource {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        self.bytes.open(at, end)
    }

    fn extents(&self, at: u64, end: u64) -> Result<Option<Vec<Extent>>, SourceError> {
        self.bytes.extents(at, end)
    }

    fn is_disk(&self) -> bool {
        true
    }

    fn limit_receive_memory(&self, bytes: usize) {
        self.bytes.limit_receive_memory(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_hash_that_is_known_is_the_checksum() {
        let md5 = "9e107d9d372bb6826bd81d3542a419d6";
        let sha = "0f".repeat(64);
        for (algorithm, value, expected) in [
            (Some("sha512"), Some(sha.as_str()), Some(format!("sha512:{sha}"))),
            (Some("blake2"), Some(sha.as_str()), Some(format!("md5:{md5}"))),
            (None, None, Some(format!("md5:{md5}"))),
        ] {
            let image = Image {
                os_hash_algo: algorithm.map(str::to_owned),
                os_hash_value: value.map(str::to_owned),
                checksum: Some(md5.into()),
                ..Image::default()
            };
            assert_eq!(image.checksum().map(|checksum| checksum.to_string()), expected);
        }
        assert_eq!(Image::default().checksum(), None);
    }
}
