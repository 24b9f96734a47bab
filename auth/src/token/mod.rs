//! Signed, expiring permission to upload to one PVC or to clone one volume.
//!
//! A token is a compact JWS, `PS256`, with the key that upstream CDI's clusters already have. The clock is an argument.
//!

mod keys;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Serialize};

pub use keys::{KeyTexts, SigningKey, VerifyingKey};

/// Signs upload tokens, and clone tokens on request.
pub const ISSUER_API_SERVER: &str = "cdi-apiserver";
/// Signs extended clone tokens.
pub const ISSUER_CONTROLLER: &str = "cdi-deployment";
/// Validity of a token of [`ISSUER_API_SERVER`].
pub const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Validity of a token of [`ISSUER_CONTROLLER`]: ten years.
pub const LIFETIME_EXTENDED: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Tolerated difference between two machines' clocks.
const LEEWAY: Duration = Duration::from_secs(10);

/// What a token permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(default)]
    pub operation: Operation,
    /// Name of the object.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub resource: Resource,
    /// Of a clone: `targetNamespace`, `targetName` and `uid`. Of a golden image: `uid`, `cronUID` and `digest`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Uploading to a PVC.
    Upload,
    Clone,
    /// Nothing by itself: the controller states which image a PVC or VolumeSnapshot holds. See [`Claims::golden_image`].
    GoldenImage,
    /// An unknown operation, which permits nothing.
    #[default]
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Empty for the core group.
    #[serde(default)]
    pub group: String,
    /// `v1`.
    #[serde(default)]
    pub version: String,
    /// The plural, such as `persistentvolumeclaims`.
    #[serde(default)]
    pub resource: String,
}

impl Resource {
    pub fn pvcs() -> Self {
        Self::named("", "persistentvolumeclaims")
    }

    pub fn snapshots() -> Self {
        Self::named("snapshot.storage.k8s.io", "volumesnapshots")
    }

    fn named(group: &str, resource: &str) -> Self {
        Self { group: group.into(), version: "v1".into(), resource: resource.into() }
    }
}

impl Claims {
    /// Permits an upload to a PVC.
    pub fn upload(namespace: &str, name: &str) -> Self {
        Self {
            operation: Operation::Upload,
            name: name.into(),
            namespace: namespace.into(),
            resource: Resource::pvcs(),
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

/// Why a token cannot be created, or is refused. Never contains the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot use the {what}: it has to be a PEM RSA key")]
    Key {
        /// `signing key`, `public key`.
        what: &'static str,
        source: Option<jsonwebtoken::errors::Error>,
    },
    #[error("cannot sign a token")]
    Sign(#[source] jsonwebtoken::errors::Error),
    #[error("the token is malformed or was not signed by this cluster's key")]
    Untrusted(#[source] jsonwebtoken::errors::Error),
    /// Signed by the right key for another purpose.
    #[error("the token was issued by {found:?} and not by {expected:?}")]
    Issuer { found: String, expected: String },
    #[error("the token has expired")]
    Expired,
    /// A long-lived token has to name the UID of its object, not only the name.
    #[error(
        "the token names no UID, so it does not count: delete the DataVolume and create it again"
    )]
    Unbound,
    /// The issuer's clock is ahead.
    #[error("the token is not valid yet")]
    NotYet,
}

/// The JWS payload.
#[derive(Serialize)]
struct SignedPayload<'a> {
    iss: &'a str,
    iat: u64,
    nbf: u64,
    exp: u64,
    #[serde(flatten)]
    claims: &'a Claims,
}

/// The payload as parsed: times may have fractions.
#[derive(Deserialize)]
struct ParsedPayload {
    #[serde(default)]
    iss: String,
    #[serde(default)]
    nbf: f64,
    exp: f64,
    #[serde(flatten)]
    claims: Claims,
}

impl SigningKey {
    /// Signs a token for `claims`, valid from `now` for `lifetime`.
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
        let signed = SignedPayload { iss: issuer, iat: now, nbf: now, exp, claims };
        let header = Header { typ: None, ..Header::new(Algorithm::PS256) };
        jsonwebtoken::encode(&header, &signed, self.key()).map_err(TokenError::Sign)
    }
}

impl VerifyingKey {
    /// The claims of `token`, if `issuer` signed it with this key and it is valid at `now`.
    ///
    /// # Errors
    /// Why the token is refused.
    pub fn verify(&self, token: &str, issuer: &str, now: SystemTime) -> Result<Claims, TokenError> {
        self.verify_within(token, issuer, now, Duration::ZERO)
    }

    /// [`verify`](Self::verify) that accepts a token for `grace` after its expiry, for a transfer that began before.
    ///
    /// # Errors
    /// Why the token is refused.
    pub fn verify_within(
        &self,
        token: &str,
        issuer: &str,
        now: SystemTime,
        grace: Duration,
    ) -> Result<Claims, TokenError> {
        let mut rules = Validation::new(Algorithm::PS256);
        // Times and issuer are checked below, against the `now` argument.
        rules.required_spec_claims.clear();
        (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
        let read: ParsedPayload =
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

/// Seconds since 1970; 0 for earlier times.
fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
