//! Signed rights: who holds such a token may upload to one claim, or clone one volume.
//!
//! The form is a compact JWS, `PS256`, with the key that every cluster of this kind already has. Nothing here looks at a
//! clock: the moment is passed in.

mod keys;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Serialize};

pub use keys::{KeyTexts, SigningKey, VerifyingKey};

/// Who signs uploads, and clones when they are asked for.
pub const ISSUER_API_SERVER: &str = "cdi-apiserver";
/// Who signs clones again, for longer.
pub const ISSUER_CONTROLLER: &str = "cdi-deployment";
/// How long what [`ISSUER_API_SERVER`] signs is good.
pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How long what [`ISSUER_CONTROLLER`] signs is good: ten years.
pub const LIFETIME_EXTENDED: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How far the clocks of two machines may be apart.
const LEEWAY: Duration = Duration::from_secs(10);

/// What a token allows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// What may be done.
    #[serde(default)]
    pub operation: Operation,
    /// The object it may be done to.
    #[serde(default)]
    pub name: String,
    /// Where that is.
    #[serde(default)]
    pub namespace: String,
    /// What kind of object it is.
    #[serde(default)]
    pub resource: Resource,
    /// Of a clone: `targetNamespace`, `targetName` and `uid`. Of a golden image: `uid`, `cronUID` and `digest`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Filling a claim by HTTP.
    Upload,
    /// Copying a volume.
    Clone,
    /// Nothing by itself: the controller states which image a PVC or VolumeSnapshot holds. See [`Claims::golden_image`].
    GoldenImage,
    /// Nothing that is known here, which therefore allows nothing.
    #[default]
    #[serde(other)]
    Other,
}

/// A kind of object, as Kubernetes names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Empty for what Kubernetes itself brings.
    #[serde(default)]
    pub group: String,
    /// `v1`.
    #[serde(default)]
    pub version: String,
    /// In the plural.
    #[serde(default)]
    pub resource: String,
}

impl Resource {
    /// PersistentVolumeClaims.
    pub fn claims() -> Self {
        Self::named("", "persistentvolumeclaims")
    }

    /// VolumeSnapshots.
    pub fn snapshots() -> Self {
        Self::named("snapshot.storage.k8s.io", "volumesnapshots")
    }

    fn named(group: &str, resource: &str) -> Self {
        Self { group: group.into(), version: "v1".into(), resource: resource.into() }
    }
}

impl Claims {
    /// The right to upload to a claim.
    pub fn upload(namespace: &str, name: &str) -> Self {
        Self {
            operation: Operation::Upload,
            name: name.into(),
            namespace: namespace.into(),
            resource: Resource::claims(),
            params: BTreeMap::new(),
        }
    }

    /// The statement of the controller that it imported an image into this PVC or VolumeSnapshot: for the DataImportCron
    /// with this UID, with this digest. It names the UID of the object, so that no other object of its name inherits it.
    pub fn golden_image(
        resource: Resource,
        (namespace, name, uid): (&str, &str, &str),
        cron_uid: &str,
        digest: &str,
    ) -> Self {
        let params = [("uid", uid), ("cronUID", cron_uid), ("digest", digest)];
        Self {
            operation: Operation::GoldenImage,
            name: name.into(),
            namespace: namespace.into(),
            resource,
            params: params.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        }
    }
}

/// Why a token cannot be made, or is not believed. Never holds the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// No key of this kind.
    #[error("the {what} cannot be used: it has to be an RSA key as PEM")]
    Key {
        /// `signing key`, `public key`.
        what: &'static str,
        /// What is wrong with it, where the library says so.
        source: Option<jsonwebtoken::errors::Error>,
    },
    /// The key signs nothing.
    #[error("no token can be signed")]
    Sign(#[source] jsonwebtoken::errors::Error),
    /// Not a token, or not signed with this key.
    #[error("this is no token that was signed here")]
    Untrusted(#[source] jsonwebtoken::errors::Error),
    /// Signed for another purpose.
    #[error("the token was issued by {found:?} and not by {expected:?}")]
    Issuer {
        /// Whom it names.
        found: String,
        /// Who was expected.
        expected: String,
    },
    /// It was good once.
    #[error("the token has expired")]
    Expired,
    /// A token that lasts has to name the object that it is for, not only its name.
    #[error(
        "the token names no UID, so it does not count: delete the DataVolume and create it again"
    )]
    Unbound,
    /// The clock of whoever signed it is ahead.
    #[error("the token is not valid yet")]
    NotYet,
}

/// As on the wire.
#[derive(Serialize)]
struct Signed<'a> {
    iss: &'a str,
    iat: u64,
    nbf: u64,
    exp: u64,
    #[serde(flatten)]
    claims: &'a Claims,
}

/// The same, when read: times may have fractions.
#[derive(Deserialize)]
struct Read {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    nbf: f64,
    exp: f64,
    #[serde(flatten)]
    claims: Claims,
}

impl SigningKey {
    /// A token for `claims`, good from `now` on for `lifetime`.
    ///
    /// # Errors
    /// When the key does not sign.
    pub fn sign(
        &self,
        claims: &Claims,
        issuer: &str,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<String, TokenError> {
        let now = seconds(now);
        let exp = now.saturating_add(lifetime.as_secs());
        let signed = Signed { iss: issuer, iat: now, nbf: now, exp, claims };
        let header = Header { typ: None, ..Header::new(Algorithm::PS256) };
        jsonwebtoken::encode(&header, &signed, self.key()).map_err(TokenError::Sign)
    }
}

impl VerifyingKey {
    /// What `token` allows, if it was signed by `issuer` with this key and is good at `now`.
    ///
    /// # Errors
    /// With the reason why it is not believed.
    pub fn verify(&self, token: &str, issuer: &str, now: SystemTime) -> Result<Claims, TokenError> {
        self.verify_within(token, issuer, now, Duration::ZERO)
    }

    /// What `token` allows, or allowed within the last `grace`: for work that was begun while it was good.
    ///
    /// # Errors
    /// With the reason why it is not believed.
    pub fn verify_within(
        &self,
        token: &str,
        issuer: &str,
        now: SystemTime,
        grace: Duration,
    ) -> Result<Claims, TokenError> {
        let mut rules = Validation::new(Algorithm::PS256);
        // Times and issuer are looked at below, with a clock that is passed in.
        rules.required_spec_claims.clear();
        (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
        let read: Read =
            jsonwebtoken::decode(token, self.key(), &rules).map_err(TokenError::Untrusted)?.claims;
        if read.iss != issuer {
            return Err(TokenError::Issuer { found: read.iss, expected: issuer.to_owned() });
        }
        let (now, leeway) = (seconds(now) as f64, LEEWAY.as_secs() as f64);
        if now - leeway - grace.as_secs() as f64 > read.exp {
            return Err(TokenError::Expired);
        }
        if now + leeway < read.nbf {
            return Err(TokenError::NotYet);
        }
        Ok(read.claims)
    }
}

/// Since 1970; before that it was 1970.
fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
