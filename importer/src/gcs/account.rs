//! A service account's key, as Google hands it out.

use std::fmt;
use std::path::PathBuf;

use aws_lc_rs::signature::RsaKeyPair;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use crate::secret::Secret;

/// Whose key to sign with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GcsCredentials {
    /// None: only public objects can be read.
    #[default]
    Anonymous,
    /// The file of a service account's key, in JSON.
    File(PathBuf),
    /// What such a file holds.
    Json(Secret),
}

/// Longer than any key file.
const JSON_LEN_MAX: usize = 64 << 10;

/// A service account that can sign.
pub(super) struct ServiceAccount {
    pub(super) email: String,
    pub(super) key: RsaKeyPair,
}

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    private_key: String,
}

impl ServiceAccount {
    /// The account that is meant, if one is. Or why it cannot be used: never with a part of the key.
    pub(super) fn from_credentials(credentials: &GcsCredentials) -> Result<Option<Self>, String> {
        match credentials {
            GcsCredentials::Anonymous => Ok(None),
            GcsCredentials::Json(json) => {
                Self::parse(json.reveal()).map_err(|because| format!("the key {because}")).map(Some)
            }
            GcsCredentials::File(path) => {
                let named = |because| format!("the key file {} {because}", path.display());
                let json = std::fs::read_to_string(path)
                    .map_err(|error| named(format!("cannot be read: {error}")))?;
                Self::parse(&json).map_err(named).map(Some)
            }
        }
    }

    fn parse(json: &str) -> Result<Self, String> {
        if json.len() > JSON_LEN_MAX {
            return Err("is too long to be one".into());
        }
        // serde's message for a mistake may repeat the text around it.
        let file: KeyFile =
            serde_json::from_str(json).map_err(|_| "is not the JSON of a service account's key")?;
        if file.kind != "service_account" {
            let kind: String = file.kind.escape_debug().take(40).collect();
            return Err(format!("is of the type \"{kind}\": only \"service_account\" works"));
        }
        if file.client_email.is_empty() {
            return Err("has no client_email".into());
        }
        let key = PrivateKeyDer::from_pem_slice(file.private_key.as_bytes())
            .map_err(|_| "has no private_key in PEM")?;
        let key = match &key {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err("has a private_key of another kind than RSA".into()),
        };
        let key = key.map_err(|_| "has a private_key that is none of RSA")?;
        Ok(Self { email: file.client_email, key })
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ServiceAccount({})", self.email)
    }
}
