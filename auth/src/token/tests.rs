use std::sync::LazyLock;

use super::*;

/// A key takes a while to be made.
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
fn what_openssl_has_signed_is_believed() {
    let key = VerifyingKey::from_pem(include_bytes!("testdata/openssl.pub")).unwrap();
    let token = include_str!("testdata/openssl.jwt").trim();
    let claims = key.verify(token, ISSUER_API_SERVER, at(1100)).unwrap();
    assert_eq!(claims, Claims::upload("default", "disk"));
    assert!(KEYS.1.verify(token, ISSUER_API_SERVER, at(1100)).is_err(), "another key");
}

#[test]
fn a_token_is_good_from_its_beginning_to_its_end_and_a_little_longer() {
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
fn what_has_begun_may_go_on_for_a_while_after_the_token() {
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
fn claims_survive_signing() {
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
fn what_others_have_signed_is_not_believed() {
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
fn what_is_not_known_or_not_said_allows_nothing() {
    let claims: Claims = serde_json::from_str(r#"{"operation":"Delete"}"#).unwrap();
    assert_eq!(claims, Claims::default());
    assert_eq!(claims.operation, Operation::Other);
}

#[test]
fn keys_are_as_clusters_have_them_and_appear_in_no_text() {
    let texts = KeyTexts::generate().unwrap();
    assert!(texts.private.starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
    assert!(texts.public.starts_with("-----BEGIN PUBLIC KEY-----\n"));
    assert!(!format!("{texts:?}").contains("PRIVATE"));
    assert_eq!(format!("{:?} {:?}", KEYS.0, KEYS.1), "SigningKey(…) VerifyingKey(…)");
}

#[test]
fn what_is_no_key_is_found_at_the_start() {
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
