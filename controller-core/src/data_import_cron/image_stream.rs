//! OpenShift's ImageStreams: which image a tag refers to now.

use serde::Deserialize;

/// The fields of an ImageStream that polls read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStream {
    #[serde(default)]
    pub status: ImageStreamStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStreamStatus {
    /// In the order of the stream.
    #[serde(default)]
    pub tags: Vec<ImageStreamTag>,
}

/// A tag and its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageStreamTag {
    #[serde(default)]
    pub tag: String,
    /// The newest first. May be absent, `null` or empty.
    #[serde(default)]
    pub items: Option<Vec<ImageStreamItem>>,
}

/// An image that a tag referred to at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageStreamItem {
    /// Digest.
    #[serde(default)]
    pub image: String,
    /// Where it can be pulled.
    #[serde(default)]
    pub docker_image_reference: String,
}

/// Why an ImageStream names no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoImage {
    #[error("there is no ImageStream {stream}")]
    NoStream { stream: String },
    #[error("ImageStream {stream} has no tag {tag:?}")]
    NoTag {
        stream: String,
        /// The requested tag; empty for any.
        tag: String,
    },
    /// No image was imported into the stream for the tag.
    #[error("ImageStream {stream} has no image for the tag {tag:?}")]
    NoItem { stream: String, tag: String },
}

/// Name and tag of `name` or `name:tag`.
pub fn parts(text: &str) -> (&str, Option<&str>) {
    text.split_once(':').map_or((text, None), |(name, tag)| (name, Some(tag)))
}

/// The newest image of a tag; of the first tag, if `text` names none.
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
