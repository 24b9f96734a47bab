//! Whether the tokens of an object allow its clone. A pure decision: objects, key and clock are arguments.
//!
//! Only clones from another namespace need a token; the callers check that first.

use std::time::SystemTime;

use api::annotations::{request, state};
use auth::token::{ISSUER_API_SERVER, ISSUER_CONTROLLER, TokenError, VerifyingKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Origin;
use crate::meta;

/// The object whose annotations hold the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenHolder {
    /// The webhook writes its token and rejects those that users bring along.
    DataVolume,
    /// Any user of the namespace may write the annotations.
    Claim,
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct TokenFacts<'a> {
    pub holder: TokenHolder,
    /// What is cloned.
    pub origin: &'a Origin,
    /// The target of the clone, with its annotations.
    pub target: &'a ObjectMeta,
}

/// Which token allows a clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldToken {
    /// The controller's. It names the target's UID and is valid for ten years.
    Extended,
    /// The webhook's, which expires after minutes: the controller extends it.
    Short,
}

/// Why no token allows a clone.
#[derive(Debug)]
pub enum TokenRefusal {
    /// There is none that counts for this object.
    Missing,
    /// A valid token, for another source, target, UID or operation.
    OtherClone,
    /// Forged, expired, by another issuer, or without the UID that it needs.
    Invalid(TokenError),
}

impl TokenRefusal {
    /// For the error that users read, which does not distinguish a missing token from one for another clone.
    pub fn into_source(self) -> Option<TokenError> {
        match self {
            Self::Missing | Self::OtherClone => None,
            Self::Invalid(error) => Some(error),
        }
    }
}

/// The token that allows the clone.
///
/// | token | annotation | issuer | names | counts on |
/// |---|---|---|---|---|
/// | extended | `cdi.kubevirt.io/storage.extendedCloneToken` | controller | source, target, UID | DataVolume, PVC |
/// | short | `cdi.kubevirt.io/storage.clone.token` | webhook | source, target | DataVolume |
///
/// A short token on a PVC does not count: a user could have the webhook sign one for a DataVolume of that name and copy
/// it. An extended token without a UID does not count either: it would also allow the clone to an object that was
/// created later under the same name, for which no access review was made.
///
/// # Errors
/// The refusal of the first token that is [invalid](TokenRefusal::Invalid), else of the last one that is there.
pub fn verify_clone_token(
    facts: &TokenFacts,
    key: &VerifyingKey,
    now: SystemTime,
) -> Result<HeldToken, TokenRefusal> {
    let extended = match verify_extended(facts, key, now) {
        Ok(()) => return Ok(HeldToken::Extended),
        Err(refusal) => refusal,
    };
    let short = match facts.holder {
        TokenHolder::Claim => return Err(extended),
        TokenHolder::DataVolume => match verify_short(facts, key, now) {
            Ok(()) => return Ok(HeldToken::Short),
            Err(refusal) => refusal,
        },
    };
    Err(match (extended, short) {
        (invalid @ TokenRefusal::Invalid(_), _) => invalid,
        (present, TokenRefusal::Missing) => present,
        (_, short) => short,
    })
}

fn verify_extended(
    facts: &TokenFacts,
    key: &VerifyingKey,
    now: SystemTime,
) -> Result<(), TokenRefusal> {
    let token = meta::annotation(facts.target, state::EXTENDED_CLONE_TOKEN);
    let token = token.ok_or(TokenRefusal::Missing)?;
    let claims = key.verify(token, ISSUER_CONTROLLER, now).map_err(TokenRefusal::Invalid)?;
    let allowed = facts.origin.allows_object(&claims, facts.target);
    allowed.map_err(|error| error.map_or(TokenRefusal::OtherClone, TokenRefusal::Invalid))
}

fn verify_short(
    facts: &TokenFacts,
    key: &VerifyingKey,
    now: SystemTime,
) -> Result<(), TokenRefusal> {
    let token = meta::annotation(facts.target, request::CLONE_TOKEN);
    let token = token.ok_or(TokenRefusal::Missing)?;
    let claims = key.verify(token, ISSUER_API_SERVER, now).map_err(TokenRefusal::Invalid)?;
    if facts.origin.is_allowed_by(&claims, facts.target) {
        Ok(())
    } else {
        Err(TokenRefusal::OtherClone)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use auth::token::{
        Claims, KeyTexts, LIFETIME, LIFETIME_EXTENDED, Operation, Resource, SigningKey,
    };

    use super::*;
    use crate::clone::OriginKind;

    const MINUTE: Duration = Duration::from_secs(60);

    struct Keys {
        signing: SigningKey,
        verifying: VerifyingKey,
        foreign: SigningKey,
    }

    fn keys() -> Keys {
        let [own, other] = [(), ()].map(|()| KeyTexts::generate().unwrap());
        Keys {
            signing: SigningKey::from_pem(own.private.as_bytes()).unwrap(),
            verifying: VerifyingKey::from_pem(own.public.as_bytes()).unwrap(),
            foreign: SigningKey::from_pem(other.private.as_bytes()).unwrap(),
        }
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn golden() -> Origin {
        Origin { kind: OriginKind::Claim, namespace: "images".into(), name: "golden".into() }
    }

    fn target() -> ObjectMeta {
        ObjectMeta {
            name: Some("disk".into()),
            namespace: Some("vms".into()),
            uid: Some("1".into()),
            ..ObjectMeta::default()
        }
    }

    /// A token and how it is signed. The default is the webhook's token for this clone.
    struct Token<'a> {
        claims: Claims,
        issuer: &'a str,
        key: &'a SigningKey,
        lifetime: Duration,
        signed: SystemTime,
    }

    impl<'a> Token<'a> {
        fn short(key: &'a SigningKey) -> Self {
            let claims = golden().clone_claims(&target(), None);
            Self { claims, issuer: ISSUER_API_SERVER, key, lifetime: LIFETIME, signed: now() }
        }

        fn extended(key: &'a SigningKey) -> Self {
            let claims = golden().clone_claims(&target(), Some("1"));
            let (issuer, lifetime) = (ISSUER_CONTROLLER, LIFETIME_EXTENDED);
            Self { claims, issuer, key, lifetime, signed: now() }
        }

        fn with(mut self, change: impl FnOnce(&mut Self)) -> String {
            change(&mut self);
            self.key.sign(&self.claims, self.issuer, self.lifetime, self.signed).unwrap()
        }

        fn sign(self) -> String {
            self.with(|_| ())
        }
    }

    fn verify(
        keys: &Keys,
        holder: TokenHolder,
        extended: Option<&str>,
        short: Option<&str>,
    ) -> Result<HeldToken, TokenRefusal> {
        let tokens = [(state::EXTENDED_CLONE_TOKEN, extended), (request::CLONE_TOKEN, short)];
        let annotations = tokens.into_iter().filter_map(|(key, token)| Some((key, token?)));
        let annotations =
            annotations.map(|(key, token)| (key.to_owned(), token.to_owned())).collect();
        let target = ObjectMeta { annotations: Some(annotations), ..target() };
        let origin = golden();
        verify_clone_token(
            &TokenFacts { holder, origin: &origin, target: &target },
            &keys.verifying,
            now(),
        )
    }

    /// The result in a word, for tables.
    fn word(result: &Result<HeldToken, TokenRefusal>) -> &'static str {
        match result {
            Ok(HeldToken::Extended) => "extended",
            Ok(HeldToken::Short) => "short",
            Err(TokenRefusal::Missing) => "missing",
            Err(TokenRefusal::OtherClone) => "other clone",
            Err(TokenRefusal::Invalid(error)) => match error {
                TokenError::Untrusted(_) => "untrusted",
                TokenError::Issuer { .. } => "issuer",
                TokenError::Expired => "expired",
                TokenError::Unbound => "unbound",
                TokenError::NotYet => "not yet",
                TokenError::Key { .. } | TokenError::Sign(_) => "key",
            },
        }
    }

    #[test]
    fn short_token_decision_table() {
        let keys = keys();
        let short = || Token::short(&keys.signing);
        let table: [(&str, String, &str); 13] = [
            ("as the webhook signs it", short().sign(), "short"),
            ("with the target's UID", short().with(|t| set(t, "uid", "1")), "short"),
            ("with another UID", short().with(|t| set(t, "uid", "2")), "other clone"),
            ("expired", short().with(|t| t.signed -= LIFETIME + MINUTE), "expired"),
            ("from the future", short().with(|t| t.signed += MINUTE), "not yet"),
            ("by the controller", short().with(|t| t.issuer = ISSUER_CONTROLLER), "issuer"),
            ("by another key", short().with(|t| t.key = &keys.foreign), "untrusted"),
            ("other source namespace", other(short(), |c| c.namespace = "b".into()), "other clone"),
            ("other source name", other(short(), |c| c.name = "b".into()), "other clone"),
            ("a snapshot", other(short(), |c| c.resource = Resource::snapshots()), "other clone"),
            ("other namespace", short().with(|t| set(t, "targetNamespace", "b")), "other clone"),
            ("other name", short().with(|t| set(t, "targetName", "b")), "other clone"),
            ("an upload", other(short(), |c| c.operation = Operation::Upload), "other clone"),
        ];
        for (case, token, expected) in table {
            let result = verify(&keys, TokenHolder::DataVolume, None, Some(&token));
            assert_eq!(word(&result), expected, "{case}");
            // A short token never counts on a PVC.
            let result = verify(&keys, TokenHolder::Claim, None, Some(&token));
            assert_eq!(word(&result), "missing", "on a PVC: {case}");
        }
    }

    #[test]
    fn extended_token_decision_table() {
        let keys = keys();
        let extended = || Token::extended(&keys.signing);
        let table: [(&str, String, &str); 11] = [
            ("as the controller signs it", extended().sign(), "extended"),
            ("years later", extended().with(|t| t.signed -= 1000 * 1440 * MINUTE), "extended"),
            ("expired", extended().with(|t| t.signed -= LIFETIME_EXTENDED + MINUTE), "expired"),
            ("without a UID", extended().with(|t| drop(t.claims.params.remove("uid"))), "unbound"),
            ("with another UID", extended().with(|t| set(t, "uid", "2")), "other clone"),
            ("by the webhook", extended().with(|t| t.issuer = ISSUER_API_SERVER), "issuer"),
            ("by another key", extended().with(|t| t.key = &keys.foreign), "untrusted"),
            ("other source", other(extended(), |c| c.namespace = "b".into()), "other clone"),
            ("other namespace", extended().with(|t| set(t, "targetNamespace", "b")), "other clone"),
            ("a short token", Token::short(&keys.signing).sign(), "issuer"),
            ("not a token", "a.b.c".into(), "untrusted"),
        ];
        for holder in [TokenHolder::DataVolume, TokenHolder::Claim] {
            for (case, token, expected) in &table {
                let result = verify(&keys, holder, Some(token), None);
                assert_eq!(word(&result), *expected, "{holder:?}: {case}");
            }
            assert_eq!(word(&verify(&keys, holder, None, None)), "missing");
        }
    }

    #[test]
    fn target_without_uid_has_no_extended_token() {
        let keys = keys();
        let token = Token::extended(&keys.signing).with(|t| set(t, "uid", ""));
        let mut target = ObjectMeta { uid: None, ..target() };
        target.annotations = Some([(state::EXTENDED_CLONE_TOKEN.to_owned(), token)].into());
        let origin = golden();
        for holder in [TokenHolder::DataVolume, TokenHolder::Claim] {
            let facts = TokenFacts { holder, origin: &origin, target: &target };
            assert!(verify_clone_token(&facts, &keys.verifying, now()).is_err());
        }
    }

    #[test]
    fn clone_is_allowed_only_by_a_valid_token_that_counts_there() {
        let keys = keys();
        let extended = all_cases(|| Token::extended(&keys.signing));
        let short = all_cases(|| Token::short(&keys.signing));
        for holder in [TokenHolder::DataVolume, TokenHolder::Claim] {
            for (extended_case, extended) in &extended {
                for (short_case, short) in &short {
                    let result = verify(&keys, holder, extended.as_deref(), short.as_deref());
                    let is_short_good = *short_case == "good" && holder == TokenHolder::DataVolume;
                    let expected = match *extended_case {
                        "good" => "extended",
                        _ if is_short_good => "short",
                        // A reason that a user can act on is preferred, the extended token's first.
                        "expired" => "expired",
                        other => match *short_case {
                            _ if holder == TokenHolder::Claim => missing_or(other),
                            "none" => missing_or(other),
                            short => short,
                        },
                    };
                    let case = format!("{holder:?}, extended {extended_case}, short {short_case}");
                    assert_eq!(word(&result), expected, "{case}");
                }
            }
        }
    }

    fn all_cases<'a>(token: impl Fn() -> Token<'a>) -> [(&'static str, Option<String>); 4] {
        [
            ("none", None),
            ("good", Some(token().sign())),
            ("expired", Some(token().with(|t| t.signed -= t.lifetime + MINUTE))),
            ("other clone", Some(token().with(|t| set(t, "targetName", "b")))),
        ]
    }

    fn missing_or(case: &'static str) -> &'static str {
        if case == "none" { "missing" } else { case }
    }

    fn set(token: &mut Token<'_>, parameter: &str, value: &str) {
        token.claims.params.insert(parameter.to_owned(), value.to_owned());
    }

    fn other(token: Token<'_>, change: impl FnOnce(&mut Claims)) -> String {
        token.with(|token| change(&mut token.claims))
    }
}
