//! What is decided without a server.

use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::*;
use crate::Secret;

fn key_file(key: &RsaKeyPair) -> String {
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der.as_ref())
    );
    serde_json::json!({
        "type": "service_account",
        "client_email": "importer@project.iam.gserviceaccount.com",
        "private_key": pem,
        "token_uri": "https://oauth2.googleapis.com/token",
    })
    .to_string()
}

fn gcs(account: Option<ServiceAccount>) -> Gcs {
    let object = Object::parse("gs", "gs://images/disk 1.img", "generation").unwrap();
    Gcs::new(object, Url::parse("http://127.0.0.1:4443").unwrap(), account)
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_address_is_signed_as_google_describes_it() {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let credentials = GcsCredentials::Json(Secret::new(key_file(&key)));
    let gcs = gcs(ServiceAccount::from_credentials(&credentials).unwrap());
    gcs.record_identity(&headers(&[("x-goog-generation", "1700")]));
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000); // 2026-11-18 11:06:40
    let url = gcs.address(&Method::GET, now).unwrap().to_string();

    let (address, signature) = url.split_once("&X-Goog-Signature=").unwrap();
    let query = "X-Goog-Algorithm=GOOG4-RSA-SHA256\
        &X-Goog-Credential=importer%40project.iam.gserviceaccount.com%2F20261118%2Fauto%2Fstorage%2Fgoog4_request\
        &X-Goog-Date=20261118T110640Z&X-Goog-Expires=3600&X-Goog-SignedHeaders=host&generation=1700";
    assert_eq!(address, format!("http://127.0.0.1:4443/images/disk%201.img?{query}"));

    let request = format!(
        "GET\n/images/disk%201.img\n{query}\nhost:127.0.0.1:4443\n\nhost\nUNSIGNED-PAYLOAD"
    );
    let text = format!(
        "GOOG4-RSA-SHA256\n20261118T110640Z\n20261118/auto/storage/goog4_request\n{}",
        hex(&Sha256::digest(request))
    );
    let signature: Vec<u8> = (0..signature.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&signature[at..at + 2], 16).unwrap())
        .collect();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key());
    public.verify(text.as_bytes(), &signature).unwrap();
}

#[test]
fn an_invalid_key_is_rejected_without_repeating_it() {
    let table = [
        ("hush", "is not the JSON of a service account's key"),
        (r#"{"type":"authorized_user","refresh_token":"hush"}"#, "\"authorized_user\": only"),
        (r#"{"type":"service_account","private_key":"hush"}"#, "has no client_email"),
        (r#"{"type":"service_account","client_email":"a","private_key":"hush"}"#, "in PEM"),
        (
            r#"{"type":"service_account","client_email":"a",
                "private_key":"-----BEGIN PRIVATE KEY-----\naHVzaA==\n-----END PRIVATE KEY-----\n"}"#,
            "none of RSA",
        ),
    ];
    for (json, phrase) in table {
        let error =
            ServiceAccount::from_credentials(&GcsCredentials::Json(Secret::new(json))).unwrap_err();
        assert!(error.contains(phrase) && !error.contains("hush"), "{error}");
    }
    let missing = GcsCredentials::File("/no/such/key.json".into());
    assert!(
        ServiceAccount::from_credentials(&missing)
            .unwrap_err()
            .contains("/no/such/key.json cannot be read")
    );
}

#[test]
fn the_first_response_pins_the_object_and_contains_its_checksum() {
    let gcs = gcs(None);
    assert_eq!(
        gcs.address(&Method::GET, SystemTime::now()).unwrap().as_str(),
        "http://127.0.0.1:4443/images/disk%201.img"
    );
    let first = headers(&[
        ("x-goog-generation", "1700"),
        ("x-goog-hash", "md5=JfnnlDI7RTiF9RgfG2JNCw==,crc32c=4waSgw=="),
    ]);
    assert!(gcs.record_identity(&first), "addresses change");
    assert!(
        !gcs.record_identity(&headers(&[("x-goog-generation", "1800")])),
        "the first response counts"
    );
    assert_eq!(
        gcs.address(&Method::GET, SystemTime::now()).unwrap().query(),
        Some("generation=1700")
    );
    assert_eq!(gcs.checksum(&HeaderMap::new()).unwrap().to_string(), "crc32c:e3069283");
    let refusal = Refusal {
        status: StatusCode::NOT_FOUND,
        headers: HeaderMap::new(),
        body: "<Error><Code>NoSuchKey</Code></Error>".into(),
    };
    let RefusalAction::Fail(error) = gcs.classify(&refusal, false) else { panic!("not refused") };
    assert_eq!(
        error.to_string(),
        "gs://images/disk 1.img changed during the import: it was generation 1700, it is gone"
    );
}

#[test]
fn the_address_of_a_manifest_becomes_location_and_endpoint() {
    let table = [
        ("gs://b/o", ("gs://b/o", None)),
        ("http://127.0.0.1:4443/b/o/p", ("gs://b/o/p", Some("http://127.0.0.1:4443/"))),
        ("https://h/b/o?generation=7", ("gs://b/o?generation=7", Some("https://h/"))),
    ];
    for (address, (location, endpoint)) in table {
        let found = gcs_location(address).unwrap();
        assert_eq!(found, (location.to_owned(), endpoint.map(str::to_owned)), "{address}");
    }
}
