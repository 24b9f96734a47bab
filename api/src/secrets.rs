//! Secrets and ConfigMaps, to which sources refer by name.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::metadata::ObjectMeta;

/// A Secret. Its values appear in no log and no message.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    /// `v1`.
    pub api_version: String,
    /// `Secret`.
    pub kind: String,
    /// Its name.
    pub metadata: ObjectMeta,
    /// `Opaque`, mostly. Nothing here depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
    /// In base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Plain text; takes precedence over `data`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub string_data: BTreeMap<String, String>,
}

/// A value is not base64. Names the key, not the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode key {key} of {kind} {name}: its value is not base64")]
pub struct BadBase64 {
    /// `Secret` or `ConfigMap`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The value's key.
    pub key: String,
}

impl Secret {
    /// All values, decoded.
    ///
    /// # Errors
    /// [`BadBase64`] for the first that cannot be decoded.
    pub fn values(&self) -> Result<BTreeMap<String, Vec<u8>>, BadBase64> {
        merge("Secret", &self.metadata.name, &self.data, &self.string_data)
    }
}

/// Without the values.
impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.data.keys().chain(self.string_data.keys()).collect();
        formatter
            .debug_struct("Secret")
            .field("metadata", &self.metadata)
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// `v1`.
    pub api_version: String,
    /// `ConfigMap`.
    pub kind: String,
    /// Its name.
    pub metadata: ObjectMeta,
    /// Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
    /// Text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// All values, decoded.
    ///
    /// # Errors
    /// [`BadBase64`] for the first that cannot be decoded.
    pub fn values(&self) -> Result<BTreeMap<String, Vec<u8>>, BadBase64> {
        merge("ConfigMap", &self.metadata.name, &self.binary_data, &self.data)
    }
}

fn merge(
    kind: &'static str,
    name: &str,
    encoded: &BTreeMap<String, String>,
    plain: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Vec<u8>>, BadBase64> {
    let decode = |(key, value): (&String, &String)| {
        // Line breaks in base64 are removed, as kubectl does.
        let value: String = value.split_ascii_whitespace().collect();
        let value = STANDARD.decode(value).map_err(|_| BadBase64 {
            kind,
            name: name.to_owned(),
            key: key.clone(),
        })?;
        Ok((key.clone(), value))
    };
    let plain = plain.iter().map(|(key, value)| Ok((key.clone(), value.clone().into_bytes())));
    encoded.iter().map(decode).chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn string_data_takes_precedence_over_data() {
        let secret = Secret {
            data: map(&[("user", "YW5uYQ=="), ("password", "b2xk")]),
            string_data: map(&[("password", "new")]),
            ..Secret::default()
        };
        let values = secret.values().unwrap();
        assert_eq!(values["user"], b"anna");
        assert_eq!(values["password"], b"new");
    }

    #[test]
    fn wrapped_base64_is_decoded() {
        let config =
            ConfigMap { binary_data: map(&[("ca", "YW5u\nYQ==\n")]), ..ConfigMap::default() };
        assert_eq!(config.values().unwrap()["ca"], b"anna");
    }

    #[test]
    fn debug_and_errors_hide_secret_values() {
        let mut secret = Secret { data: map(&[("key", "hush!hush")]), ..Secret::default() };
        secret.metadata.name = "creds".into();
        secret.string_data = map(&[("other", "hush")]);
        let error = secret.values().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot decode key key of Secret creds: its value is not base64"
        );
        assert!(!format!("{secret:?} {error:?}").contains("hush"));
    }
}
