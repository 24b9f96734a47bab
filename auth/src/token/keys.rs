//! The key pair of tokens, created once for a cluster and stored in a Secret.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use jsonwebtoken::{DecodingKey, EncodingKey};
use x509_parser::asn1_rs::{Any, FromDer, OctetString, Sequence};

use super::{Claims, TokenError};

/// Not shown by `Debug`.
#[derive(Clone)]
pub struct SigningKey(EncodingKey);

#[derive(Clone)]
pub struct VerifyingKey(DecodingKey);

/// A generated key pair as text.
pub struct KeyTexts {
    /// PKCS#1, as PEM: `id_rsa` in the Secret.
    pub private: String,
    /// PKIX, as PEM: `id_rsa.pub` in the Secret.
    pub public: String,
}

impl SigningKey {
    /// Parses PKCS#1 or PKCS#8. Signs once, so that an unusable key is found at the start.
    ///
    /// # Errors
    /// When the key cannot be parsed or does not sign.
    pub fn from_pem(text: &[u8]) -> Result<Self, TokenError> {
        let key = EncodingKey::from_rsa_pem(text)
            .map_err(|error| TokenError::Key { what: "signing key", source: Some(error) })?;
        let key = Self(key);
        key.sign(&Claims::default(), "", Duration::ZERO, UNIX_EPOCH)?;
        Ok(key)
    }

    pub(super) fn key(&self) -> &EncodingKey {
        &self.0
    }
}

impl VerifyingKey {
    /// Parses PKIX or PKCS#1.
    ///
    /// # Errors
    /// When the key cannot be parsed.
    pub fn from_pem(text: &[u8]) -> Result<Self, TokenError> {
        DecodingKey::from_rsa_pem(text)
            .map(Self)
            .map_err(|error| TokenError::Key { what: "public key", source: Some(error) })
    }

    pub(super) fn key(&self) -> &DecodingKey {
        &self.0
    }
}

impl KeyTexts {
    /// RSA with 2048 bits. Takes about a tenth of a second.
    ///
    /// # Errors
    /// When the kernel returns no random bytes.
    pub fn generate() -> Result<Self, TokenError> {
        let failed = || TokenError::Key { what: "signing key", source: None };
        let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|_| failed())?;
        let private: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| failed())?;
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| failed())?;
        let private = pkcs1(private.as_ref()).ok_or_else(failed)?;
        Ok(Self {
            private: pem("RSA PRIVATE KEY", private),
            public: pem("PUBLIC KEY", public.as_ref().to_vec()),
        })
    }
}

/// The key inside PKCS#8: the third member, after version and algorithm.
fn pkcs1(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let (_, members) = Sequence::from_der(pkcs8).ok()?;
    let (rest, _version) = Any::from_der(&members.content).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    Some(key.as_ref().to_vec())
}

fn pem(tag: &str, der: Vec<u8>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, der), lines)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey(…)")
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("VerifyingKey(…)")
    }
}

impl fmt::Debug for KeyTexts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyTexts").field("public", &self.public).finish_non_exhaustive()
    }
}
