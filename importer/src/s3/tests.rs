//! What is decided without a server.

use super::*;
use http::StatusCode;

fn s3(credentials: S3Credentials) -> S3 {
    let options = S3Options { credentials, ..S3Options::default() };
    S3 {
        object: Object::parse(SCHEME, "s3://images/a.qcow2", "versionId").unwrap(),
        keys: Keys::new(&options.credentials, true),
        endpoint: Mutex::new(S3Endpoint::new(&options).unwrap()),
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn refusal(status: u16, pairs: &[(&'static str, &'static str)], body: &str) -> Refusal {
    let status = StatusCode::from_u16(status).unwrap();
    Refusal { status, headers: headers(pairs), body: body.into() }
}

fn classified(s3: &S3, refusal: &Refusal, last: bool) -> String {
    match s3.classify(refusal, last) {
        RefusalAction::SignAgain => "sign again".into(),
        RefusalAction::Plain => "plain".into(),
        RefusalAction::Fail(error) => error.to_string(),
    }
}

#[test]
fn requests_move_to_the_region_that_the_store_names() {
    let elsewhere = [
        refusal(301, &[("x-amz-bucket-region", "eu-west-1")], ""),
        refusal(400, &[], "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>"),
    ];
    for refusal in elsewhere {
        let s3 = s3(S3Credentials::Anonymous);
        assert_eq!(
            classified(&s3, &refusal, true).get(..14),
            Some("could not get "),
            "the last time"
        );
        assert_eq!(classified(&s3, &refusal, false), "sign again");
        assert_eq!(s3.endpoint().region_or(None), "eu-west-1");
        assert!(classified(&s3, &refusal, false).contains("in another region"), "known by now");
    }
}

#[test]
fn expired_addresses_are_signed_again() {
    let keys = S3Credentials::Keys {
        access_key_id: "id".into(),
        secret_key: crate::Secret::new("key"),
        session_token: None,
    };
    let expired = refusal(400, &[], "<Code>ExpiredToken</Code>");
    assert_eq!(classified(&s3(keys.clone()), &expired, false), "sign again");
    let message = classified(&s3(keys), &expired, true);
    assert_eq!(
        message,
        "could not get s3 object: \"images/a.qcow2\": the session token has expired: get new \
         credentials (ExpiredToken, status 400)"
    );
    assert!(classified(&s3(S3Credentials::Anonymous), &expired, false).contains("ExpiredToken"));
}

#[test]
fn only_checksums_of_whole_objects_are_used() {
    let crc = "y/Q5Jg==";
    let table: [(&[(&str, &str)], Option<&str>); 5] = [
        (&[("x-amz-checksum-crc32", crc)], Some("crc32:cbf43926")),
        (
            &[("x-amz-checksum-crc32c", crc), ("x-amz-checksum-type", "FULL_OBJECT")],
            Some("crc32c:cbf43926"),
        ),
        (&[("x-amz-checksum-crc32", crc), ("x-amz-checksum-type", "COMPOSITE")], None),
        (&[("x-amz-checksum-crc32", "y/Q5Jg==-3")], None),
        (&[("etag", "\"25f9e794323b453885f5181f1b624d0b\"")], None),
    ];
    for (pairs, expected) in table {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let found = s3(S3Credentials::Anonymous).checksum(&map);
        assert_eq!(found.map(|found| found.to_string()).as_deref(), expected, "{pairs:?}");
    }
}

#[test]
fn the_address_of_a_manifest_becomes_location_and_endpoint() {
    let table = [
        ("http://127.0.0.1:9000/b/k/l", ("s3://b/k/l", Some("http://127.0.0.1:9000/"))),
        (
            "https://s3.eu-west-1.amazonaws.com/b/k",
            ("s3://b/k", Some("https://s3.eu-west-1.amazonaws.com/")),
        ),
        ("https://h/b/a%20c?versionId=v", ("s3://b/a c?versionId=v", Some("https://h/"))),
        ("S3://b/k", ("S3://b/k", None)),
    ];
    for (address, (location, endpoint)) in table {
        let found = s3_location(address).unwrap();
        assert_eq!(found, (location.to_owned(), endpoint.map(str::to_owned)), "{address}");
    }
    assert!(s3_location("https://host/bucket-only").is_err());
}
