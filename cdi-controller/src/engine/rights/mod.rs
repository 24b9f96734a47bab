//! Clone tokens: permission to clone from another namespace. The webhook signs one for minutes; the controller verifies it
//! and signs an extended one for the target.

mod keys;

use std::sync::Arc;
use std::time::SystemTime;

use api::annotations::state;
use auth::token::{Claims, ISSUER_CONTROLLER, LIFETIME_EXTENDED, TokenError, VerifyingKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::{Engine, Error};
use controller_core::clone::{HeldToken, Origin, TokenFacts, TokenHolder, verify_clone_token};
use controller_core::meta;

pub use keys::TokenKeys;

/// The token of a DataVolume that allows cloning `origin` to it.
///
/// # Errors
/// [`Error::NoRight`]; [`Error::Local`] or [`Error::Tokens`] where there is no key.
pub fn check(engine: &Engine, origin: &Origin, target: &ObjectMeta) -> Result<HeldToken, Error> {
    verify(engine, TokenHolder::DataVolume, origin, target)
}

/// Whether the annotations of a PVC allow cloning `origin` to it.
///
/// # Errors
/// As [`check`].
pub fn check_claim(engine: &Engine, origin: &Origin, claim: &ObjectMeta) -> Result<(), Error> {
    verify(engine, TokenHolder::Claim, origin, claim).map(|_| ())
}

fn verify(
    engine: &Engine,
    holder: TokenHolder,
    origin: &Origin,
    target: &ObjectMeta,
) -> Result<HeldToken, Error> {
    let key = engine.token_keys.verifying()?;
    let facts = TokenFacts { holder, origin, target };
    verify_clone_token(&facts, &key, SystemTime::now())
        .map_err(|refusal| not_allowed(origin, target, refusal.into_source()))
}

/// Whether the controller has still to write the token of a PVC, which its DataVolume allows.
pub fn is_awaited(origin: &Origin, claim: &ObjectMeta) -> bool {
    origin.namespace != meta::namespace(claim)
        && !meta::has_annotation(claim, state::EXTENDED_CLONE_TOKEN)
        && meta::controller(claim).is_some_and(|owner| owner.kind == "DataVolume")
}

/// An extended token for `target`, bound to its UID. [`check`] first: this does not.
///
/// # Errors
/// Where there is no key.
pub fn extend(engine: &Engine, origin: &Origin, target: &ObjectMeta) -> Result<String, Error> {
    sign(engine, &origin.clone_claims(target, Some(meta::uid(target))))
}

/// A mark of the controller for a PVC that is restored from the snapshot `origin` on behalf of the object `owner_uid`. It
/// allows no clone, because no PVC of that name has that UID.
///
/// # Errors
/// Where there is no key.
pub fn mark(
    engine: &Engine,
    origin: &Origin,
    claim: &ObjectMeta,
    owner_uid: &str,
) -> Result<String, Error> {
    sign(engine, &origin.clone_claims(claim, Some(owner_uid)))
}

/// Signs as the controller; valid for [`LIFETIME_EXTENDED`].
///
/// # Errors
/// Where there is no key.
pub fn sign(engine: &Engine, claims: &Claims) -> Result<String, Error> {
    let key = engine.token_keys.signing()?;
    let token = key.sign(claims, ISSUER_CONTROLLER, LIFETIME_EXTENDED, SystemTime::now());
    token.map_err(Error::Tokens)
}

/// Whether a PVC has that [`mark`].
///
/// # Errors
/// Where there is no key.
pub fn is_marked(
    engine: &Engine,
    origin: &Origin,
    claim: &ObjectMeta,
    owner_uid: &str,
) -> Result<bool, Error> {
    let Some(token) = meta::annotation(claim, state::EXTENDED_CLONE_TOKEN) else {
        return Ok(false);
    };
    let key = engine.token_keys.verifying()?;
    let claims = key.verify(token, ISSUER_CONTROLLER, SystemTime::now());
    Ok(claims.is_ok_and(|claims| claims == origin.clone_claims(claim, Some(owner_uid))))
}

/// # Errors
/// Where there is none.
pub fn public_key(engine: &Engine) -> Result<Arc<VerifyingKey>, Error> {
    engine.token_keys.verifying()
}

fn not_allowed(origin: &Origin, target: &ObjectMeta, source: Option<TokenError>) -> Error {
    let target = format!("{}/{}", meta::namespace(target), meta::name(target));
    Error::NoRight { origin: origin.to_string(), target, source: source.map(Arc::new) }
}
