//! The right to clone from another namespace: what the webhook signed for a few minutes is signed again, for longer.

use std::time::SystemTime;

use api::annotations::{request, state};
use api::names::{SIGNING_KEY_PRIVATE, SIGNING_KEY_PUBLIC};
use auth::token::{
    Claims, ISSUER_API_SERVER, ISSUER_CONTROLLER, LIFETIME_EXTENDED, SigningKey, VerifyingKey,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::{Context, Error};
use controller_core::clone::Origin;
use controller_core::meta;

/// Which token of a DataVolume allows its clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldToken {
    /// The controller's, which lasts as long as the DataVolume.
    Extended,
    /// The webhook's, which lasts some minutes.
    Short,
}

/// The token of a DataVolume that allows cloning `origin` to it. An extended token counts only with the UID of this very
/// DataVolume: another one of its name has not been reviewed. The webhook lets nobody bring a short one along.
///
/// # Errors
/// [`Error::NoRight`]; others where there is no key.
pub fn check(context: &Context, origin: &Origin, target: &ObjectMeta) -> Result<HeldToken, Error> {
    let key = public_key(context)?;
    let now = SystemTime::now();
    let mut why = None;
    for (held, token, issuer) in [
        (HeldToken::Extended, state::EXTENDED_CLONE_TOKEN, ISSUER_CONTROLLER),
        (HeldToken::Short, request::CLONE_TOKEN, ISSUER_API_SERVER),
    ] {
        let Some(token) = meta::annotation(target, token) else { continue };
        let problem = match (key.verify(token, issuer, now), held) {
            (Ok(said), HeldToken::Extended) => match origin.allows_object(&said, target) {
                Ok(()) => return Ok(held),
                Err(problem) => problem,
            },
            (Ok(said), HeldToken::Short) if origin.is_allowed_by(&said, target) => return Ok(held),
            (Ok(_), HeldToken::Short) => None,
            (Err(error), _) => Some(error),
        };
        why = why.or(problem);
    }
    Err(refused(origin, target, why))
}

/// Whether the annotations of a claim say that `origin` may be cloned to it. Everybody may write there, and have a shorter
/// token made: only a longer one counts, with the UID of this very claim.
///
/// # Errors
/// As [`check`].
pub fn check_claim(context: &Context, origin: &Origin, claim: &ObjectMeta) -> Result<(), Error> {
    let key = public_key(context)?;
    let token = meta::annotation(claim, state::EXTENDED_CLONE_TOKEN);
    let token = token.ok_or_else(|| refused(origin, claim, None))?;
    let said = key.verify(token, ISSUER_CONTROLLER, SystemTime::now());
    let said = said.map_err(|error| refused(origin, claim, Some(error)))?;
    origin.allows_object(&said, claim).map_err(|problem| refused(origin, claim, problem))
}

/// Whether a claim's DataVolume still has to give it the right to `origin`.
pub fn is_awaited(origin: &Origin, claim: &ObjectMeta) -> bool {
    origin.namespace != meta::namespace(claim)
        && !meta::has_annotation(claim, state::EXTENDED_CLONE_TOKEN)
        && meta::controller(claim).is_some_and(|owner| owner.kind == "DataVolume")
}

/// A token that lasts, for `target` and no other object of its name. Who signs has to have [`check`]ed first.
///
/// # Errors
/// Where there is no key.
pub fn extend(context: &Context, origin: &Origin, target: &ObjectMeta) -> Result<String, Error> {
    sign(context, &origin.right(target, Some(meta::uid(target))))
}

/// A mark for a claim that is made of `origin`, a snapshot, for the object with this UID. Nobody else can make one, and it
/// allows nothing: no claim of that name has that UID.
///
/// # Errors
/// Where there is no key.
pub fn mark(
    context: &Context,
    origin: &Origin,
    claim: &ObjectMeta,
    owner_uid: &str,
) -> Result<String, Error> {
    sign(context, &origin.right(claim, Some(owner_uid)))
}

/// Signs in the name of the controller, for ten years.
///
/// # Errors
/// Where there is no key.
pub fn sign(context: &Context, said: &Claims) -> Result<String, Error> {
    let key = SigningKey::from_pem(&read(context, SIGNING_KEY_PRIVATE)?).map_err(Error::Tokens)?;
    let token = key.sign(said, ISSUER_CONTROLLER, LIFETIME_EXTENDED, SystemTime::now());
    token.map_err(Error::Tokens)
}

/// Whether a claim has that [`mark`].
///
/// # Errors
/// Where there is no key.
pub fn is_marked(
    context: &Context,
    origin: &Origin,
    claim: &ObjectMeta,
    owner_uid: &str,
) -> Result<bool, Error> {
    let Some(token) = meta::annotation(claim, state::EXTENDED_CLONE_TOKEN) else {
        return Ok(false);
    };
    let key = public_key(context)?;
    let said = key.verify(token, ISSUER_CONTROLLER, SystemTime::now());
    Ok(said.is_ok_and(|said| said == origin.right(claim, Some(owner_uid))))
}

/// The key that tokens are verified with.
///
/// # Errors
/// Where there is none.
pub fn public_key(context: &Context) -> Result<VerifyingKey, Error> {
    VerifyingKey::from_pem(&read(context, SIGNING_KEY_PUBLIC)?).map_err(Error::Tokens)
}

fn refused(origin: &Origin, target: &ObjectMeta, source: Option<auth::token::TokenError>) -> Error {
    let target = format!("{}/{}", meta::namespace(target), meta::name(target));
    Error::NoRight { origin: origin.to_string(), target, source }
}

fn read(context: &Context, name: &str) -> Result<Vec<u8>, Error> {
    let path = context.settings.token_keys.join(name);
    std::fs::read(&path).map_err(|source| Error::Local {
        action: format!("read {}, by which clones are allowed", path.display()),
        source,
    })
}
