//! Reading a manifest: YAML or JSON, one document or several.

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use yaml_serde::Value;

use crate::data_volume::{self, DataVolume};
use crate::metadata::ObjectMeta;
use crate::secrets::{ConfigMap, Secret};

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A DataVolume.
    DataVolume(Box<DataVolume>),
    /// A Secret.
    Secret(Secret),
    /// A ConfigMap.
    ConfigMap(ConfigMap),
    /// Another kind, not parsed.
    Other {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
        /// Name.
        name: String,
    },
}

/// Why a manifest cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not YAML, or a field has the wrong type.
    #[error("cannot parse document {number} of the manifest")]
    Malformed {
        /// Counted from 1.
        number: usize,
        /// What, and in which line.
        source: yaml_serde::Error,
    },
    /// Most likely a misspelt field name; ignoring it could change the meaning of the object.
    #[error("unknown field {path} in document {number} of the manifest")]
    UnknownField {
        /// Counted from 1.
        number: usize,
        /// Such as `spec.prealocation`.
        path: String,
    },
}

/// Group, version and kind of an object.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Header {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
}

/// What `kubectl get -o yaml` prints for several objects.
#[derive(serde::Deserialize)]
struct List {
    items: Vec<Value>,
}

/// All objects of a manifest, in order; those in a `List` too. Empty documents are left out.
///
/// # Errors
/// [`Error`] for the first document that is broken.
pub fn read(text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    // Twice over the same text: the kind of a document decides on its type, and errors keep their line numbers.
    let headers = yaml_serde::Deserializer::from_str(text);
    let bodies = yaml_serde::Deserializer::from_str(text);
    for (number, (header, body)) in (1..).zip(headers.zip(bodies)) {
        let malformed = |source| Error::Malformed { number, source };
        let Some(header) = Option::<Header>::deserialize(header).map_err(malformed)? else {
            continue;
        };
        if header.kind == "List" && header.api_version == "v1" {
            for item in List::deserialize(body).map_err(malformed)?.items {
                let header = Header::deserialize(&item).map_err(malformed)?;
                documents.push(object(number, header, item)?);
            }
        } else {
            documents.push(object(number, header, body)?);
        }
    }
    Ok(documents)
}

fn object<'de, D>(number: usize, header: Header, body: D) -> Result<Document, Error>
where
    D: Deserializer<'de, Error = yaml_serde::Error>,
{
    Ok(match (header.api_version.as_str(), header.kind.as_str()) {
        (data_volume::API_VERSION, "DataVolume") => {
            Document::DataVolume(Box::new(decode_strictly(number, body)?))
        }
        ("v1", "Secret") => Document::Secret(decode_strictly(number, body)?),
        ("v1", "ConfigMap") => Document::ConfigMap(decode_strictly(number, body)?),
        _ => Document::Other {
            api_version: header.api_version,
            kind: header.kind,
            name: header.metadata.name,
        },
    })
}

/// Decodes an object and refuses unknown fields, except those that an API server adds.
fn decode_strictly<'de, T, D>(number: usize, body: D) -> Result<T, Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de, Error = yaml_serde::Error>,
{
    let mut unknown = None;
    let object = serde_ignored::deserialize(body, |path| {
        // An `Option` in the way shows as `?`.
        let path = path.to_string().replace("?.", "");
        if path != "status" && !path.starts_with("metadata.") {
            unknown.get_or_insert(path);
        }
    })
    .map_err(|source| Error::Malformed { number, source })?;
    match unknown {
        Some(path) => Err(Error::UnknownField { number, path }),
        None => Ok(object),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::validate::{CLUSTER_SCHEMES, validate};

    const VOLUME: &str = "
apiVersion: cdi.kubevirt.io/v1beta1
kind: DataVolume
metadata: {name: a, uid: 1-2-3, managedFields: [{manager: kubectl}]}
spec:
  source: {http: {url: 'http://host/a'}}
  storage: {resources: {requests: {storage: 1Gi}}}
status: {phase: Succeeded}
";

    fn volume(document: &Document) -> &DataVolume {
        match document {
            Document::DataVolume(volume) => volume,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn documents_are_read_in_order_without_empty_ones() {
        let text = format!(
            "---\n{VOLUME}---\n# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n\
             stringData: {{a: b}}\n---\n{{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"data\": {{\"k\": \"v\"}}}}\n\
             ---\napiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {{name: vm}}\nspec: {{x: 1}}\n"
        );
        let documents = read(&text).unwrap();
        assert_eq!(documents.len(), 4);
        assert_eq!(volume(&documents[0]).metadata.name, "a");
        assert_eq!(
            volume(&documents[0]).spec.storage.as_ref().unwrap().requested(),
            "1Gi".parse().ok()
        );
        assert!(
            matches!(&documents[1], Document::Secret(secret) if secret.string_data["a"] == "b")
        );
        assert!(matches!(&documents[2], Document::ConfigMap(config) if config.data["k"] == "v"));
        assert!(matches!(&documents[3], Document::Other { kind, name, .. }
            if kind == "VirtualMachine" && name == "vm"));
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn items_of_a_list_are_documents() {
        let item = VOLUME.trim().replace('\n', "\n  ");
        let documents = read(&format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n")).unwrap();
        assert_eq!(volume(&documents[0]), volume(&read(VOLUME).unwrap()[0]));
    }

    #[test]
    fn examples_of_the_documentation_are_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples");
        let mut volumes = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            for document in read(&std::fs::read_to_string(&path).unwrap()).unwrap() {
                if let Document::DataVolume(volume) = document {
                    validate(&volume, CLUSTER_SCHEMES).unwrap_or_else(|e| panic!("{path:?}: {e}"));
                    volumes += 1;
                }
            }
        }
        assert!(volumes >= 20, "only {volumes} examples");
    }

    #[test]
    fn misspelt_field_is_refused_with_its_path() {
        for (right, wrong, path) in [
            ("  storage:", "  prealocation: true\n  storage:", "spec.prealocation"),
            ("http: {", "http: {secretref: x, ", "spec.source.http.secretref"),
            ("http: {", "ftp: {}, http: {", "spec.source.ftp"),
            ("kind: D", "specs: {}\nkind: D", "specs"),
        ] {
            let error = read(&VOLUME.replace(right, wrong)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("unknown field {path} in document 1 of the manifest")
            );
        }
    }

    #[test]
    fn malformed_document_is_reported_with_its_line() {
        for (right, wrong, cause) in [
            ("1Gi", "1GB", "spec.storage.resources.requests.storage: \"1GB\" is no quantity"),
            ("storage: {", "storage: [", "did not find expected"),
            ("spec:", "spec: {}\nspec:", "duplicate"),
            (
                "  storage:",
                "  preallocation: perhaps\n  storage:",
                "spec.preallocation: invalid type",
            ),
        ] {
            let error = read(&format!("---\n{}", VOLUME.replace(right, wrong))).unwrap_err();
            assert_eq!(error.to_string(), "cannot parse document 1 of the manifest");
            let text = error.source().unwrap().to_string();
            assert!(text.contains(cause) && text.contains("line"), "{text}");
        }
    }
}
