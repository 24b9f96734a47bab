//! Admission rules for a DataVolume that need only the object itself. The messages are upstream CDI's: `virtctl`, KubeVirt and
//! their tests match them.

mod claim;
mod source;

use crate::data_volume::{ContentType, DataVolume, DataVolumeSpec, Source};
use crate::metadata::{NAME_LENGTH_MAX, is_namespace_name, is_object_name};

/// The first rule that an object violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({field})")]
pub struct Invalid {
    /// The field, spelt as in upstream CDI's causes, such as `spec.source.HTTP.url`.
    pub field: String,
    /// What is wrong. Clients match these texts.
    pub message: String,
}

impl Invalid {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// URL schemes that are accepted in a cluster.
pub const CLUSTER_SCHEMES: &[&str] = &["http", "https", "gs"];

/// Checks `volume` by the admission rules, in upstream's order. `schemes` are the accepted URL schemes, in a cluster
/// [`CLUSTER_SCHEMES`].
///
/// # Errors
/// The first rule that is violated.
pub fn validate(volume: &DataVolume, schemes: &[&str]) -> Result<(), Invalid> {
    name(volume)?;
    validate_spec(&volume.spec, schemes)
}

/// [`validate()`] without the name.
///
/// # Errors
/// The first rule that is violated.
pub fn validate_spec(spec: &DataVolumeSpec, schemes: &[&str]) -> Result<(), Invalid> {
    claim::check(spec)?;
    source::check(spec, schemes)
}

/// Checks one source. Field names are given as under `spec.source`.
///
/// # Errors
/// The first rule that is violated.
pub fn validate_source(
    source: Source<'_>,
    content: ContentType,
    schemes: &[&str],
) -> Result<(), Invalid> {
    source::check_one(source, content, schemes)
}

fn name(volume: &DataVolume) -> Result<(), Invalid> {
    let meta = &volume.metadata;
    let invalid = |field, message: &str| Err(Invalid::new(field, message));
    if meta.name.is_empty() {
        return match meta.generate_name {
            Some(_) => invalid("metadata.generateName", "Only a cluster can generate a name"),
            None => invalid("metadata.name", "Required value: name is required"),
        };
    }
    if meta.name.len() > NAME_LENGTH_MAX {
        let message = format!("Name cannot be longer than {NAME_LENGTH_MAX} characters");
        return invalid("metadata.name", &message);
    }
    if !is_object_name(&meta.name) {
        let message = format!(
            "Invalid value: {:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            meta.name
        );
        return invalid("metadata.name", &message);
    }
    if !is_namespace_name(meta.namespace()) {
        let message = format!(
            "Invalid value: {:?}: a lowercase RFC 1123 label of at most 63 characters is needed",
            meta.namespace().chars().take(NAME_LENGTH_MAX).collect::<String>()
        );
        return invalid("metadata.namespace", &message);
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::{Document, read};

    /// A DataVolume with this `spec`, in YAML flow style.
    pub(crate) fn with_spec(spec: &str) -> DataVolume {
        volume(&format!("metadata: {{name: a}}\nspec: {spec}\n"))
    }

    fn volume(rest: &str) -> DataVolume {
        let text = format!("apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\n{rest}");
        match read(&text).unwrap().pop() {
            Some(Document::DataVolume(volume)) => *volume,
            other => panic!("{other:?}"),
        }
    }

    /// `Ok` as the empty text, else `field: message`.
    pub(crate) fn check(spec: &str) -> String {
        match validate(&with_spec(spec), CLUSTER_SCHEMES) {
            Ok(()) => String::new(),
            Err(Invalid { field, message }) => format!("{field}: {message}"),
        }
    }

    #[test]
    fn names_are_checked_first() {
        let long = "x".repeat(254);
        for (metadata, expected) in [
            ("{}", "Required value: name is required (metadata.name)"),
            ("{generateName: a-}", "Only a cluster can generate a name (metadata.generateName)"),
            (
                &format!("{{name: {long}}}"),
                "Name cannot be longer than 253 characters (metadata.name)",
            ),
            (
                "{name: ../../etc}",
                "Invalid value: \"../../etc\": a lowercase RFC 1123 subdomain must consist of lower case \
                 alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
                 (metadata.name)",
            ),
            (
                "{name: a, namespace: ..}",
                "Invalid value: \"..\": a lowercase RFC 1123 label of at most 63 characters is needed \
                 (metadata.namespace)",
            ),
        ] {
            let volume = volume(&format!("metadata: {metadata}\nspec: {{}}\n"));
            let error = validate(&volume, CLUSTER_SCHEMES).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
