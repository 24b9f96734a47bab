use std::sync::LazyLock;

use super::*;

// Generating a key takes a tenth of a second.
static KEYS: LazyLock<(SigningKey, VerifyingKey)> = LazyLock::new(new_keys);

fn new_keys() -> (SigningKey, VerifyingKey) {
    let texts = KeyTexts::generate().unwrap();
    let signing = SigningKey::from_pem(texts.private.as_bytes()).unwrap();
    (signing, VerifyingKey::from_pem(texts.public.as_bytes()).unwrap())
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn signed_at_1000() -> String {
    KEYS.0.sign(&Claims::upload("ns", "disk"), ISSUER_API_SERVER, LIFETIME, at(1000)).unwrap()
}

#[test]
fn token_signed_by_openssl_is_accepted() {
    let key = VerifyingKey::from_pem(include_bytes!("testdata/openssl.pub")).unwrap();
    let token = include_str!("testdata/openssl.jwt").trim();
    let claims = key.verify(token, ISSUER_API_SERVER, at(1100)).unwrap();
    assert_eq!(claims, Claims::upload("default", "disk"));
    assert!(KEYS.1.verify(token, ISSUER_API_SERVER, at(1100)).is_err(), "another key");
}

#[test]
fn token_is_valid_from_start_to_expiry_with_leeway() {
    let token = signed_at_1000();
    for (now, expected) in [
        (989, Err("the token is not valid yet")),
        (990, Ok(())),
        (1000, Ok(())),
        (1300, Ok(())),
        (1310, Ok(())),
        (1311, Err("the token has expired")),
    ] {
        let found = KEYS.1.verify(&token, ISSUER_API_SERVER, at(now));
        let found = found.map(drop).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{now}");
    }
}

#[test]
fn grace_extends_the_expiry() {
    let (token, grace) = (signed_at_1000(), Duration::from_secs(100));
    let good = |now| KEYS.1.verify_within(&token, ISSUER_API_SERVER, at(now), grace).is_ok();
    assert_eq!(
        [989, 990, 1310, 1311, 1410, 1411].map(good),
        [false, true, true, true, true, false]
    );
    let forged = token.replace('.', "..");
    assert!(KEYS.1.verify_within(&forged, ISSUER_API_SERVER, at(1000), grace).is_err());
}

#[test]
fn claims_round_trip() {
    let params = [("targetNamespace", "b"), ("targetName", "c"), ("uid", "1-2")];
    let claims = Claims {
        operation: Operation::Clone,
        resource: Resource::snapshots(),
        params: params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..Claims::upload("a", "snapshot")
    };
    let sign = |issuer, lifetime| KEYS.0.sign(&claims, issuer, lifetime, at(0)).unwrap();
    let extended = sign(ISSUER_CONTROLLER, LIFETIME_EXTENDED);
    let in_nine_years = at(9 * 365 * 24 * 60 * 60);
    assert_eq!(KEYS.1.verify(&extended, ISSUER_CONTROLLER, in_nine_years).unwrap(), claims);
}

#[test]
fn tokens_of_other_keys_and_algorithms_are_refused() {
    let (token, other) = (signed_at_1000(), new_keys());
    let verify = |token: &str, issuer| KEYS.1.verify(token, issuer, at(1000));
    assert!(matches!(verify(&token, ISSUER_CONTROLLER), Err(TokenError::Issuer { .. })));
    let claims = Claims::upload("ns", "disk");
    let foreign = other.0.sign(&claims, ISSUER_API_SERVER, LIFETIME, at(1000)).unwrap();
    let (unsigned, _) = token.rsplit_once('.').unwrap();
    let (_, payload_and_signature) = token.split_once('.').unwrap();
    for (case, text) in [
        ("another key", foreign.clone()),
        ("no signature", format!("{unsigned}.")),
        ("another's signature", format!("{unsigned}.{}", foreign.rsplit_once('.').unwrap().1)),
        // {"alg":"none"} and {"alg":"HS256"}
        ("no algorithm", format!("eyJhbGciOiJub25lIn0.{payload_and_signature}")),
        ("a weaker algorithm", format!("eyJhbGciOiJIUzI1NiJ9.{payload_and_signature}")),
        ("a part", unsigned.to_owned()),
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
    ] {
        let found = verify(&text, ISSUER_API_SERVER);
        assert!(matches!(found, Err(TokenError::Untrusted(_))), "{case}: {found:?}");
    }
}

#[test]
fn unknown_or_missing_claims_permit_nothing() {
    let claims: Claims = serde_json::from_str(r#"{"operation":"Delete"}"#).unwrap();
    assert_eq!(claims, Claims::default());
    assert_eq!(claims.operation, Operation::Other);
}

#[test]
fn keys_have_upstream_cdis_format_and_debug_hides_them() {
    let texts = KeyTexts::generate().unwrap();
    assert!(texts.private.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
    assert!(texts.public.starts_with("-----BEGIN PUBLIC KEY-----\n"));
    assert!(!format!("{texts:?}").contains("PRIVATE"));
    assert_eq!(format!("{:?} {:?}", KEYS.0, KEYS.1), "SigningKey(…) VerifyingKey(…)");
}

#[test]
fn unusable_key_is_refused_when_loaded() {
    let public = include_bytes!("testdata/openssl.pub");
    for text in [
        b"".as_slice(),
        b"key",
        b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        public,
    ] {
        assert!(SigningKey::from_pem(text).is_err(), "{}", String::from_utf8_lossy(text));
    }
    assert!(VerifyingKey::from_pem(b"key").is_err());
}
