//! Object stores: a real one, and two with faults.

use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use importer::{GcsOptions, HttpOptions, RetryPolicy, S3Credentials, S3Options, Secret};
use testkit::{Compressor, Fault, FaultServer, MIB, Request, compress, pattern};
use tests::{Import, LIMIT, Target};

use crate::each;
use crate::s3_server::{self, S3Server, SECRET_KEY, with_keys};

const LEN: u64 = 8 * MIB;

#[test]
fn s3_object_is_imported_with_any_name() {
    let (server, disk) = (S3Server::private(), pattern(LEN));
    for key in ["disk.img", "folder/a b.img", "naïve+key=1&x.img", "50%.img"] {
        server.put(key, &disk);
        let target = Target::file();
        let report = server.signed(key, target.path()).report();
        target.expect(&disk, key);
        assert_eq!((&report["route"], &report["bytesRead"]), (&"ranges".into(), &LEN.into()));
    }
}

#[test]
fn temporary_keys_are_used_with_their_session_token() {
    let server = FaultServer::in_memory(&pattern(MIB));
    let target = Target::file();
    let import = Store::S3.import(&server, &target).variable("AWS_SESSION_TOKEN", "hush-token");
    import.report();
    let signed = |request: &Request| request.target.contains("X-Amz-Security-Token=hush-token");
    assert!(server.requests().iter().all(signed), "{:?}", server.requests());
}

#[test]
fn store_errors_name_bucket_and_key_and_hide_secrets() {
    let server = S3Server::private();
    server.put("disk.img", &pattern(MIB));
    let target = Target::file();
    let at = |key: &str| server.import(key, target.path());
    let elsewhere = s3_server::import("s3://nowhere/disk.img", &server.endpoint(), target.path());
    let table = [
        (
            with_keys(at("missing.img"), SECRET_KEY),
            "\"images/missing.img\": there is no such object",
        ),
        (with_keys(elsewhere, SECRET_KEY), "\"nowhere/disk.img\": there is no such"),
        (
            with_keys(at("disk.img"), "another/hush"),
            "\"images/disk.img\": the secret key does not belong to the access key id \
             (SignatureDoesNotMatch, status 403)",
        ),
        (at("disk.img").flag("--anonymous"), "the object is not public: give keys"),
        (
            at("disk.img"),
            "could not build s3 client for \"127.0.0.1\": no credentials: set AWS_ACCESS_KEY_ID",
        ),
    ];
    for (import, words) in table {
        let finished = import.flag("-vv").run();
        let message = finished.expect_refusal();
        assert!(message.contains(words), "{words}: {message}");
        assert!(!message.contains("hush") && !message.contains("X-Amz-Signature"), "{message}");
        target.expect_unfinished(&[], words);
    }
}

#[test]
fn public_object_takes_no_keys() {
    let server = S3Server::public();
    server.put("disk.img", &pattern(LEN));
    let target = Target::file();
    server.import("disk.img", target.path()).flag("--anonymous").report();
    target.expect(&pattern(LEN), "public");
}

#[test]
fn stored_s3_checksum_is_verified() {
    let server = S3Server::public();
    let disk = pattern(MIB);
    let Some(wire) = compress(Compressor::GZIP, &disk) else { return };
    let sum = STANDARD.encode(crc32fast::hash(&wire).to_be_bytes());
    server.upload("disk.img.gz", &wire, ("x-amz-checksum-crc32", &sum));
    let import = |target: &Target| {
        server.import("disk.img.gz", target.path()).flag("--anonymous").flag("-vv").run()
    };
    let target = Target::file();
    let finished = import(&target).expect_success();
    target.expect(&disk, "whole");
    assert!(finished.stderr.contains("has the crc32 of its store"), "{}", finished.stderr);
    // A byte of gzip's header that does not affect the content is changed in the store.
    let mut changed = wire.clone();
    changed[8] ^= 0x04;
    server.put("disk.img.gz", &changed);
    let target = Target::file();
    let message = import(&target).expect_refusal();
    assert!(message.contains("checksum mismatch: expected crc32:"), "{message}");
    target.expect_unfinished(&disk, "changed in the store");
}

#[test]
fn stored_gcs_checksum_is_verified() {
    let disk = pattern(MIB);
    let Some(wire) = compress(Compressor::GZIP, &disk) else { return };
    let server = |sum: &str| {
        FaultServer::in_memory(&wire)
            .always(Fault::Header("x-goog-hash", format!("crc32c={sum},md5=x")))
            .always(Fault::Header("x-goog-generation", "1700".into()))
    };
    // Of nine digits, and so of other bytes than these.
    let message = Store::Gcs.import(&server("4waSgw=="), &Target::file()).refusal();
    assert!(message.contains("expected crc32c:e3069283, calculated crc32c:"), "{message}");
    let right = message.split("calculated crc32c:").nth(1).and_then(|rest| rest.get(..8));
    let right = u32::from_str_radix(right.expect("eight digits"), 16).expect("digits");
    let (server, target) = (server(&STANDARD.encode(right.to_be_bytes())), Target::file());
    Store::Gcs.import(&server, &target).report();
    target.expect(&disk, "whole");
    let pinned = |request: &Request| request.target.contains("generation=1700");
    let requests = server.requests();
    assert!(!pinned(&requests[0]) && requests[1..].iter().all(pinned), "{requests:?}");
    // Unpacked by the store, an object would have another checksum.
    let as_stored = |request: &Request| request.header("accept-encoding") == Some("gzip");
    assert!(requests.iter().all(as_stored), "{requests:?}");
}

#[test]
fn gcs_service_account_signs_its_requests() {
    let (server, target) = (FaultServer::in_memory(&pattern(LEN)), Target::file());
    let path = target.path().with_file_name("key.json");
    std::fs::write(&path, service_account()).expect("cannot write a key");
    let import = Store::Gcs.import(&server, &target).option("--gcs-key", &path).flag("-vv");
    let finished = import.run().expect_success();
    assert!(!finished.stderr.contains("X-Goog-Signature"), "{}", finished.stderr);
    std::fs::remove_file(path).expect("cannot remove a key");
    target.expect(&pattern(LEN), "signed");
    for request in server.requests() {
        let (_, signature) =
            request.target.split_once("X-Goog-Signature=").expect("a signed request");
        assert_eq!(signature.len(), 512, "{}", request.target);
    }
}

/// The key of a service account of Google's, as its console hands it out.
pub fn service_account() -> String {
    let key = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = key.as_der().expect("a key has a form");
    let pem = STANDARD.encode(der.as_ref());
    let json = serde_json::json!({
        "type": "service_account",
        "client_email": "importer@project.example",
        "private_key": format!("-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n"),
    });
    json.to_string()
}

/// A store that the fault server simulates.
#[derive(Clone, Copy, Debug)]
enum Store {
    S3,
    Gcs,
}

const STORES: [Store; 2] = [Store::S3, Store::Gcs];

impl Store {
    fn location(self) -> &'static str {
        match self {
            Self::S3 => "s3://images/folder/disk.img",
            Self::Gcs => "gs://images/folder/disk.img",
        }
    }

    fn import(self, server: &FaultServer, target: &Target) -> Import {
        let endpoint = server.url_of("");
        match self {
            Self::S3 => {
                let import = s3_server::import(self.location(), &endpoint, target.path());
                with_keys(import, SECRET_KEY)
            }
            Self::Gcs => {
                let import = Import::new(self.location(), target.path());
                let no_key = import.variable("GOOGLE_APPLICATION_CREDENTIALS", "");
                no_key.option("--gcs-endpoint", endpoint)
            }
        }
    }

    /// Reads the whole object in this process, with little patience.
    fn read(self, server: &FaultServer) -> Result<Vec<u8>, String> {
        let endpoint = Some(server.url_of(""));
        let credentials = S3Credentials::Keys {
            access_key_id: s3_server::KEY_ID.into(),
            secret_key: Secret::new(SECRET_KEY),
            session_token: None,
        };
        let options = HttpOptions {
            stall_timeout: Duration::from_secs(1),
            retry: RetryPolicy {
                delay_first: Duration::from_millis(1),
                delay_max: Duration::from_millis(5),
                ..RetryPolicy::default()
            },
            s3: S3Options { endpoint: endpoint.clone(), credentials, ..S3Options::default() },
            gcs: GcsOptions { endpoint, ..GcsOptions::default() },
            ..HttpOptions::default()
        };
        let source = importer::source(self.location(), &options).map_err(error_text)?;
        let (mut stream, mut all) = (source.open(0, None), Vec::new());
        while let Some(bytes) = stream.next().map_err(|error| error.to_string())? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }
}

fn error_text(error: importer::Error) -> String {
    error.to_string()
}

fn xml(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    )
}

#[test]
fn expired_signed_url_is_renewed() {
    let expired = || Fault::Refuse(403, xml("AccessDenied", "Request has expired"));
    // Only what was signed can expire.
    let server = FaultServer::in_memory(&pattern(LEN)).once(Fault::CloseAt(MIB)).on(3, expired());
    assert!(Store::S3.read(&server).expect("signed again") == pattern(LEN));
    assert!(Store::Gcs.read(&FaultServer::in_memory(&[]).on(1, expired())).is_err());
}

#[test]
fn object_deleted_during_the_import_is_an_error() {
    each(&STORES, |store| {
        let gone = Fault::Refuse(404, xml("NoSuchKey", "gone"));
        let server = FaultServer::in_memory(&pattern(LEN))
            .once(Fault::CloseAt(3 * MIB))
            .always(Fault::Header("x-goog-generation", "7".into()))
            .on(3, gone);
        let message = store.read(&server).expect_err("gone");
        let words = match store {
            Store::S3 => {
                "could not get s3 object: \"images/folder/disk.img\": there is no such object"
            }
            Store::Gcs => "changed during the import: it was generation 7, it is gone",
        };
        assert!(message.contains(words), "{message}");
    });
}

#[test]
fn bucket_region_redirect_is_followed() {
    let moved =
        Fault::Refuse(400, xml("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"));
    let in_region = |request: &Request| request.target.contains("%2Feu-west-1%2Fs3%2Faws4_request");
    let server =
        FaultServer::in_memory(&pattern(MIB)).when(move |request| !in_region(request), moved);
    assert!(Store::S3.read(&server).expect("found") == pattern(MIB));
    let asked = server.requests().iter().filter(|request| !in_region(request)).count();
    assert_eq!(asked, 1, "found once");
}

#[test]
fn store_errors_are_retried_a_few_times() {
    let expired = || Fault::Refuse(400, xml("ExpiredToken", "The provided token has expired."));
    let server = FaultServer::in_memory(&pattern(MIB)).always(expired());
    let message = Store::S3.read(&server).expect_err("refused");
    assert!(message.contains("the session token has expired: get new credentials"), "{message}");
    assert!(server.requests().len() <= 5, "{}", server.requests().len());
    let away = FaultServer::in_memory(&pattern(MIB)).always(Fault::RedirectTo("/elsewhere".into()));
    assert!(Store::S3.read(&away).expect_err("in a circle").contains("redirect"));
}

#[test]
fn cdi_apply_imports_from_s3() {
    let (server, disk) = (S3Server::private(), pattern(LEN));
    server.put("disk.img", &disk);
    let folder = tempfile::tempdir().expect("cannot make a folder");
    let manifest = folder.path().join("volume.yaml");
    let text = format!(
        "apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata: {{name: guest}}\nspec:\n  source: \
         {{s3: {{url: '{}/images/disk.img', secretRef: keys}}}}\n  storage: {{resources: {{requests: {{storage: \
         8Mi}}}}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: keys}}\nstringData: {{accessKeyId: \
         {}, secretKey: '{SECRET_KEY}'}}\n",
        server.endpoint(),
        s3_server::KEY_ID
    );
    std::fs::write(&manifest, text).expect("cannot write a manifest");
    let mut apply = std::process::Command::new(testkit::cdi());
    apply.args(["apply", "--json", "-f"]).arg(&manifest).arg("--volumes").arg(folder.path());
    let finished = testkit::process::run(&mut apply, LIMIT).expect_success();
    assert!(finished.stdout.contains("\"Succeeded\""), "{}", finished.stdout);
    let made = std::fs::read(folder.path().join("default/guest/disk.img")).expect("a disk");
    assert!(made == disk);
}
