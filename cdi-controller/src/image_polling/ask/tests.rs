use serde_json::{Value, json};
use testkit::{Stub, StubResponse};

use importer::DialExceptions;

use controller_core::data_import_cron::{PollSecrets, verify_poll_secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn cron(source: Value, annotations: Value) -> DataImportCron {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": "cron", "namespace": "images", "uid": "u", "annotations": annotations },
        "spec": {
            "schedule": "0 0 * * *", "managedDataSource": "fedora", "template": { "spec": { "source": source } },
        },
    }))
    .unwrap()
}

fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    pairs.iter().map(|(key, value)| ((*key).to_owned(), bytes(value))).collect()
}

fn send(
    request: &PollRequest,
    known: Option<&KnownRevision>,
) -> Result<LatestImage, importer::Error> {
    request.clone().send(known, CallLimit::default())
}

fn config() -> CdiConfig {
    serde_json::from_value(json!({
        "apiVersion": "v", "kind": "k", "metadata": { "name": "config" },
        "spec": { "insecureRegistries": ["host:5000"] },
        "status": { "importProxy": { "HTTPSProxy": "http://proxy:1", "noProxy": ".local" } },
    }))
    .unwrap()
}

#[test]
fn poll_has_the_credentials_and_settings_of_an_import() {
    let keys = secret(&[("accessKeyId", "anna"), ("secretKey", "hush")]);
    let header = secret(&[("a", "X-Token: hush")]);
    let ca = BTreeMap::from([("ca.crt".to_owned(), "pem".to_owned())]);
    let config = config();
    let access = Access {
        secret: Some(&keys),
        authorities: vec![&ca],
        headers: vec![&header],
        config: Some(&config),
        dial_policy: DialPolicy::Guarded(DialExceptions::default()),
    };
    let registry = json!({ "registry": {
        "url": "docker://host:5000/a", "secretRef": "s", "certConfigMap": "c",
    } });
    let of_registry = cron(registry, json!({}));
    let needed = poll_needs(&of_registry);
    assert_eq!((needed.secret.as_deref(), needed.authorities.as_deref()), (Some("s"), Some("c")));
    let request = poll_request(&of_registry, &access).unwrap();
    assert_eq!(request.location, "docker://host:5000/a");
    assert_eq!(request.options.dial_policy, access.dial_policy);
    assert_eq!(request.options.insecure_hosts, ["host:5000"]);
    assert_eq!(request.options.ca_pem, ["pem"]);
    assert_eq!(request.options.proxy.https.as_deref(), Some("http://proxy:1"));
    assert_eq!(request.options.auth.as_ref().unwrap().username, "anna");
    assert!(!format!("{request:?}").contains("hush"));

    let http = json!({ "http": {
        "url": "https://user@Host/a.img", "insecureSkipVerify": true, "extraHeaders": ["X-A: b"],
        "secretExtraHeaders": ["h"], "secretRef": "s",
    } });
    let of_web = cron(http, json!({ key::CHECKSUMS_URL: "https://host/SHA256SUMS" }));
    assert_eq!(poll_needs(&of_web).headers, ["h"]);
    let request = poll_request(&of_web, &access).unwrap();
    // Not `X-A`: the controller never sends a header that a tenant chose.
    let names: Vec<_> = request.options.headers.iter().map(|header| header.name.as_str()).collect();
    assert_eq!(names, ["X-Token"]);
    assert!(request.options.insecure_tls && request.checksums.is_some());

    let s3 = json!({ "s3": { "url": "https://minio:9000/images/a.img", "secretRef": "s" } });
    let of_store = cron(s3, json!({}));
    let request = poll_request(&of_store, &access).unwrap();
    assert_eq!(request.location, "s3://images/a.img");
    assert!(matches!(request.options.s3.credentials, S3Credentials::Keys { .. }));
    assert!(request.options.auth.is_none());
}

#[test]
fn error_names_the_missing_key_or_source() {
    let registry = json!({ "registry": { "url": "docker://a/b", "secretRef": "s" } });
    let cron_of = |source: Value| cron(source, json!({}));
    let refused = |source: Value, access: &Access| {
        poll_request(&cron_of(source), access).unwrap_err().to_string()
    };
    let no_key = "the Secret s has no key accessKeyId in the namespace of the installation";
    assert_eq!(refused(registry.clone(), &Access::default()), no_key);
    let half = secret(&[("accessKeyId", "anna")]);
    let access = Access { secret: Some(&half), ..Access::default() };
    assert!(refused(registry, &access).contains("has no key secretKey"));
    assert!(refused(json!({ "s3": { "url": "https://host" } }), &access).contains("host"));
    for other in
        [json!({ "blank": {} }), json!({ "registry": { "imageStream": "s" } }), json!(null)]
    {
        assert_eq!(poll_request(&cron_of(other), &access).unwrap_err(), PollRequestError::NotOurs);
    }
}

#[test]
fn unchanged_image_of_a_web_server_is_detected_by_a_conditional_request() {
    let server = Stub::start(|asked| {
        assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/disk.img"));
        assert_eq!(asked.range(), Some((0, 1)));
        match asked.header("if-none-match") {
            Some("\"v1\"") => StubResponse::new(304, ""),
            _ => StubResponse::new(206, "x")
                .with("ETag", "\"v1\"")
                .with("Content-Range", "bytes 0-0/9"),
        }
    });
    let mut cron = cron(json!({ "http": { "url": server.url("/disk.img") } }), json!({}));
    let request = poll_request(&cron, &Access::default()).unwrap();
    let mut memory = PollResults::default();
    assert_eq!(memory.known(&cron), None);
    let result = memory.record(&cron, send(&request, None));
    let PollResult::Newest { digest, .. } = result else { panic!("{result:?}") };
    assert!(digest.starts_with("etag:"), "{digest}");
    cron.metadata
        .annotations
        .get_or_insert_default()
        .insert(key::DESIRED_DIGEST.into(), digest.clone());
    let known = memory.known(&cron).unwrap();
    assert_eq!(known.marks.etag.as_deref(), Some("\"v1\""));
    assert_eq!(memory.record(&cron, send(&request, Some(&known))), PollResult::Unchanged);
    // A restarted controller does not know the ETag, finds the same digest, and sends the ETag from then on.
    let mut other = PollResults::default();
    let known = other.known(&cron).unwrap();
    let same = PollResult::Newest { digest, image_stream_ref: None };
    assert_eq!(other.record(&cron, send(&request, Some(&known))), same);
    let known = other.known(&cron).unwrap();
    assert_eq!(other.record(&cron, send(&request, Some(&known))), PollResult::Unchanged);
    // The ETag does not belong to a digest that was set by hand.
    cron.metadata
        .annotations
        .get_or_insert_default()
        .insert(key::DESIRED_DIGEST.into(), "sha256:12".into());
    let known = memory.known(&cron).unwrap();
    assert_eq!(known.marks, importer::HttpValidators::default());
    assert!(matches!(
        memory.record(&cron, send(&request, Some(&known))),
        PollResult::Newest { .. }
    ));
}

#[test]
fn failures_are_counted_until_a_success_and_have_the_same_message() {
    let server = Stub::start(|_| StubResponse::new(404, ""));
    let cron = cron(json!({ "http": { "url": server.url("/disk.img?sig=hush") } }), json!({}));
    let request = poll_request(&cron, &Access::default()).unwrap();
    let mut memory = PollResults::default();
    let results: Vec<_> = (0..2).map(|_| memory.record(&cron, send(&request, None))).collect();
    let [
        PollResult::Failed { failures: 1, because },
        PollResult::Failed { failures: 2, because: again },
    ] = results.as_slice()
    else {
        panic!("{results:?}");
    };
    assert_eq!(because, again);
    assert_eq!(because, "cannot poll the source: the server refused: 404 Not Found");
    assert_eq!(memory.record(&cron, Ok(LatestImage::Unchanged)), PollResult::Unchanged);
    assert!(matches!(
        memory.failed(&cron, &PollRequestError::NotOurs),
        PollResult::Failed { failures: 1, .. }
    ));
    memory.forget("u");
    assert!(memory.crons.is_empty());
}

#[test]
fn secret_names_the_namespaces_whose_crons_may_use_it() {
    let registry = json!({ "registry": { "url": "docker://a/b", "secretRef": "s" } });
    let http = json!({ "http": { "url": "https://a/b", "secretRef": "s" } });
    let s3 = json!({ "s3": { "url": "https://a/b/c", "secretRef": "s" } });
    // The annotation, the installation's namespace, and which sources may use the Secret: a registry without and with
    // the setting, and the others.
    for (allowed, installation, listed, registries, others) in [
        (None, "cdi", false, true, false),
        (Some(""), "cdi", false, false, false),
        (Some("other"), "cdi", false, false, false),
        (Some("images-2,2-images,Images"), "cdi", false, false, false),
        (Some("other, images"), "cdi", true, true, true),
        (Some("*"), "cdi", true, true, true),
        // An import in that namespace uses the same Secret.
        (None, "images", true, true, true),
        (Some("other"), "images", true, true, true),
    ] {
        let metadata = json!({
            "name": "s", "annotations": allowed.map(|allowed| json!({ key::POLL_FROM: allowed })),
        });
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        for (source, by_default, by_setting) in
            [(&registry, listed, registries), (&http, others, others), (&s3, others, others)]
        {
            let cron = cron(source.clone(), json!({}));
            for (secrets, expected) in
                [(PollSecrets::Listed, by_default), (PollSecrets::Registries, by_setting)]
            {
                let found = verify_poll_secret("s", Some(&metadata), &cron, installation, secrets);
                let case = format!("{allowed:?} in {installation} for {source} by {secrets:?}");
                assert_eq!(found.is_ok(), expected, "{case}");
            }
        }
    }
}

#[test]
fn who_may_not_use_a_secret_does_not_learn_whether_there_is_one() {
    let cron = cron(json!({ "http": { "url": "https://a/b", "secretRef": "s" } }), json!({}));
    let present = ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() };
    let [with, without] = [Some(&present), None].map(|found| {
        verify_poll_secret("s", found, &cron, "cdi", PollSecrets::Listed).unwrap_err()
    });
    assert_eq!(with, without);
    assert_eq!(
        with.to_string(),
        "the Secret s is not in the namespace of the installation, or is not for crons of this namespace: an \
         administrator has to add images to its annotation cdi.kubevirt.io/pollFrom"
    );
    assert_eq!(verify_poll_secret("s", None, &cron, "images", PollSecrets::Listed), Ok(()));
}

#[test]
fn poll_failure_has_a_hint_and_nothing_that_the_server_sent() {
    let plain = cron(json!({ "http": { "url": "https://a/b" } }), json!({}));
    let with_headers =
        cron(json!({ "http": { "url": "https://a/b", "extraHeaders": ["X-A: b"] } }), json!({}));
    let registry = cron(json!({ "registry": { "url": "docker://a/b" } }), json!({}));
    for (cron, kind, expected) in [
        (&plain, FailureKind::Unauthorized, "401 Unauthorized"),
        (&registry, FailureKind::Unauthorized, "401 Unauthorized"),
        (
            &with_headers,
            FailureKind::Unauthorized,
            "401 Unauthorized: a poll sends no extraHeaders",
        ),
        (&with_headers, FailureKind::Forbidden, "403 Forbidden: a poll sends no extraHeaders"),
        (&with_headers, FailureKind::NotFound, "404 Not Found"),
        (&plain, FailureKind::Denied, "can permit one with -poll-allow-cidrs"),
        (&plain, FailureKind::TimedOut, "cannot poll the source: timed out"),
    ] {
        let text = explain(kind, cron);
        assert!(text.starts_with("cannot poll the source: ") && text.contains(expected), "{text}");
        let has_hint = text.contains("extraHeaders");
        assert_eq!(has_hint, expected.contains("extraHeaders"), "{text}");
    }
}
