//! OpenShift's ImageStreams: which image a tag means now.

use serde::Deserialize;

/// An ImageStream, as far as it is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStream {
    /// What is known of its tags.
    #[serde(default)]
    pub status: ImageStreamStatus,
}

/// What is known of an ImageStream's tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStreamStatus {
    /// In the order of the stream.
    #[serde(default)]
    pub tags: Vec<ImageStreamTag>,
}

/// A tag, and what it has meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStreamTag {
    /// Its name.
    #[serde(default)]
    pub tag: String,
    /// The newest first. There may be none, and it may be said so.
    #[serde(default)]
    pub items: Option<Vec<ImageStreamItem>>,
}

/// What a tag has meant at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageStreamItem {
    /// Digest.
    #[serde(default)]
    pub image: String,
    /// Where it is.
    #[serde(default)]
    pub docker_image_reference: String,
}

/// Why an ImageStream names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoImage {
    /// There is no such stream.
    #[error("there is no ImageStream {stream}")]
    NoStream {
        /// What its name should be.
        stream: String,
    },
    /// It has no such tag.
    #[error("ImageStream {stream} has no tag {tag:?}")]
    NoTag {
        /// Its name.
        stream: String,
        /// What was looked for; empty for any.
        tag: String,
    },
    /// Nothing was imported into the stream for the tag.
    #[error("ImageStream {stream} has no image for the tag {tag:?}")]
    NoItem {
        /// Its name.
        stream: String,
        /// The tag.
        tag: String,
    },
}

/// Name and tag of `name` or `name:tag`.
pub fn parts(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(name, tag)| (name, Some(tag)))
}

/// The newest image of a tag; of the first one, where none is named.
///
/// # Errors
/// [`NoImage`].
pub fn newest<'a>(stream: &'a ImageStream, text: &str) -> Result<&'a ImageStreamItem, NoImage> {
    let (name, tag) = parts(text);
    let found = stream.status.tags.iter().find(|found| tag.is_none_or(|tag| tag == found.tag));
    let found = found.ok_or_else(|| NoImage::NoTag {
        stream: name.to_owned(),
        tag: tag.unwrap_or_default().to_owned(),
    })?;
    let item = found.items.as_ref().and_then(|items| items.first());
    let item =
        item.filter(|item| !item.image.is_empty() && !item.docker_image_reference.is_empty());
    item.ok_or_else(|| NoImage::NoItem { stream: name.to_owned(), tag: found.tag.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stream_names_the_newest_image_of_a_tag() {
        let stream: ImageStream = serde_json::from_value(json!({
            "kind": "ImageStream",
            "status": { "dockerImageRepository": "r", "tags": [
                { "tag": "v1", "items": [{ "image": "sha256:1", "dockerImageReference": "r@sha256:1", "created": "t" }] },
                { "tag": "v2", "items": [
                    { "image": "sha256:3", "dockerImageReference": "r@sha256:3" },
                    { "image": "sha256:2", "dockerImageReference": "r@sha256:2" },
                ] },
                { "tag": "broken", "items": null },
                { "tag": "empty", "items": [{ "image": "" }] },
            ] },
        }))
        .unwrap();
        let found = |text: &str| match newest(&stream, text) {
            Ok(item) => format!("{} {}", item.image, item.docker_image_reference),
            Err(error) => error.to_string(),
        };
        assert_eq!(found("s"), "sha256:1 r@sha256:1");
        assert_eq!(found("s:v2"), "sha256:3 r@sha256:3");
        assert_eq!(found("s:v3"), "ImageStream s has no tag \"v3\"");
        assert_eq!(found("s:broken"), "ImageStream s has no image for the tag \"broken\"");
        assert_eq!(found("s:empty"), "ImageStream s has no image for the tag \"empty\"");
        assert_eq!(
            newest(&ImageStream::default(), "s").unwrap_err().to_string(),
            "ImageStream s has no tag \"\""
        );
    }
}
