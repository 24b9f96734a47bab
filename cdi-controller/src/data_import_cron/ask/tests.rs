use serde_json::{Value, json};
use testkit::{Stub, Told};

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

fn config() -> CdiConfig {
    serde_json::from_value(json!({
        "apiVersion": "v", "kind": "k", "metadata": { "name": "config" },
        "spec": { "insecureRegistries": ["host:5000"] },
        "status": { "importProxy": { "HTTPSProxy": "http://proxy:1", "noProxy": ".local" } },
    }))
    .unwrap()
}

#[test]
fn a_source_is_asked_with_what_an_import_of_it_gets() {
    let keys = secret(&[("accessKeyId", "anna"), ("secretKey", "hush")]);
    let header = secret(&[("a", "X-Token: hush")]);
    let ca = BTreeMap::from([("ca.crt".to_owned(), "pem".to_owned())]);
    let config = config();
    let access = Access {
        secret: Some(&keys),
        authorities: vec![&ca],
        headers: vec![&header],
        config: Some(&config),
    };
    let registry = json!({ "registry": {
        "url": "docker://host:5000/a", "secretRef": "s", "certConfigMap": "c",
    } });
    let of_registry = cron(registry, json!({}));
    let needed = needs(&of_registry);
    assert_eq!((needed.secret.as_deref(), needed.authorities.as_deref()), (Some("s"), Some("c")));
    let asked = order(&of_registry, &access).unwrap();
    assert_eq!(
        (asked.location.as_str(), server(&of_registry).as_str()),
        ("docker://host:5000/a", "host:5000")
    );
    assert_eq!(asked.options.insecure_hosts, ["host:5000"]);
    assert_eq!(asked.options.ca_pem, ["pem"]);
    assert_eq!(asked.options.proxy.https.as_deref(), Some("http://proxy:1"));
    assert_eq!(asked.options.auth.as_ref().unwrap().username, "anna");
    assert!(!format!("{asked:?}").contains("hush"));

    let http = json!({ "http": {
        "url": "https://user@Host/a.img", "insecureSkipVerify": true, "extraHeaders": ["X-A: b"],
        "secretExtraHeaders": ["h"], "secretRef": "s",
    } });
    let of_web = cron(http, json!({ key::CHECKSUMS_URL: "https://host/SHA256SUMS" }));
    assert_eq!(needs(&of_web).headers, ["h"]);
    let asked = order(&of_web, &access).unwrap();
    assert_eq!(asked.options.headers.len(), 2);
    assert!(asked.options.insecure_tls && asked.checksums.is_some());
    assert_eq!(server(&of_web), "host");

    let s3 = json!({ "s3": { "url": "https://minio:9000/images/a.img", "secretRef": "s" } });
    let of_store = cron(s3, json!({}));
    let asked = order(&of_store, &access).unwrap();
    assert_eq!(
        (asked.location.as_str(), server(&of_store).as_str()),
        ("s3://images/a.img", "minio:9000")
    );
    assert!(matches!(asked.options.s3.credentials, S3Credentials::Keys { .. }));
    assert!(asked.options.auth.is_none());
}

#[test]
fn what_is_missing_is_named() {
    let registry = json!({ "registry": { "url": "docker://a/b", "secretRef": "s" } });
    let cron_of = |source: Value| cron(source, json!({}));
    let refused =
        |source: Value, access: &Access| order(&cron_of(source), access).unwrap_err().to_string();
    let no_key = "the Secret s has no key accessKeyId in the namespace of the installation";
    assert_eq!(refused(registry.clone(), &Access::default()), no_key);
    let half = secret(&[("accessKeyId", "anna")]);
    let access = Access { secret: Some(&half), ..Access::default() };
    assert!(refused(registry, &access).contains("has no key secretKey"));
    assert!(refused(json!({ "s3": { "url": "https://host" } }), &access).contains("host"));
    for other in
        [json!({ "blank": {} }), json!({ "registry": { "imageStream": "s" } }), json!(null)]
    {
        assert_eq!(order(&cron_of(other), &access).unwrap_err(), BadOrder::NotOurs);
    }
}

#[test]
fn a_registry_is_insecure_only_if_it_is_listed_as_it_is_written() {
    let config = config();
    for (url, expected) in [
        ("docker://host:5000/a", true),
        ("docker://host/a", false),
        ("docker://host:5001/a", false),
        ("host:5000/a", false),
        ("", false),
    ] {
        assert_eq!(is_insecure(url, Some(&config)), expected, "{url}");
        assert!(!is_insecure(url, None));
    }
}

#[test]
fn a_web_server_that_has_nothing_new_says_so_in_a_few_bytes() {
    let server = Stub::start(|asked| {
        assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/disk.img"));
        assert_eq!(asked.range(), Some((0, 1)));
        match asked.header("if-none-match") {
            Some("\"v1\"") => Told::new(304, ""),
            _ => Told::new(206, "x").with("ETag", "\"v1\"").with("Content-Range", "bytes 0-0/9"),
        }
    });
    let mut cron = cron(json!({ "http": { "url": server.url("/disk.img") } }), json!({}));
    let order = order(&cron, &Access::default()).unwrap();
    let mut memory = Memory::default();
    assert_eq!(memory.known(&cron), None);
    let answer = memory.note(&cron, order.ask(None));
    let Answer::Newest { digest, .. } = answer else { panic!("{answer:?}") };
    assert!(digest.starts_with("etag:"), "{digest}");
    cron.metadata
        .annotations
        .get_or_insert_default()
        .insert(key::DESIRED_DIGEST.into(), digest.clone());
    let known = memory.known(&cron).unwrap();
    assert_eq!(known.marks.etag.as_deref(), Some("\"v1\""));
    assert_eq!(memory.note(&cron, order.ask(Some(&known))), Answer::Unchanged);
    // Another controller has not seen the tag, finds the same digest, and shows the tag from then on.
    let mut other = Memory::default();
    let known = other.known(&cron).unwrap();
    let same = Answer::Newest { digest, image_stream_ref: None };
    assert_eq!(other.note(&cron, order.ask(Some(&known))), same);
    let known = other.known(&cron).unwrap();
    assert_eq!(other.note(&cron, order.ask(Some(&known))), Answer::Unchanged);
    // A digest set by hand is not what the tag was of.
    cron.metadata
        .annotations
        .get_or_insert_default()
        .insert(key::DESIRED_DIGEST.into(), "sha256:12".into());
    let known = memory.known(&cron).unwrap();
    assert_eq!(known.marks, importer::Marks::default());
    assert!(matches!(memory.note(&cron, order.ask(Some(&known))), Answer::Newest { .. }));
}

#[test]
fn failures_are_counted_until_there_is_an_answer_and_told_in_the_same_words() {
    let server = Stub::start(|_| Told::new(404, ""));
    let cron = cron(json!({ "http": { "url": server.url("/disk.img?sig=hush") } }), json!({}));
    let order = order(&cron, &Access::default()).unwrap();
    let mut memory = Memory::default();
    let answers: Vec<_> = (0..2).map(|_| memory.note(&cron, order.ask(None))).collect();
    let [Answer::Failed { failures: 1, because }, Answer::Failed { failures: 2, because: again }] =
        answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!(because, again);
    assert!(because.contains("got 404") && !because.contains("hush"), "{because}");
    assert_eq!(memory.note(&cron, Ok(Newest::Unchanged)), Answer::Unchanged);
    assert!(matches!(memory.failed(&cron, &BadOrder::NotOurs), Answer::Failed { failures: 1, .. }));
    memory.forget("u");
    assert!(memory.crons.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_few_sources_are_asked_at_a_time_and_fewer_of_one_server() {
    let turns = Turns::default();
    // Virtual time: whoever does not get a turn at once does not get one at all.
    let take = async |server: &str| {
        tokio::time::timeout(Duration::from_secs(1), turns.take(server)).await.ok()
    };
    let mut taken = Vec::new();
    for server in ["a", "a", "a", "b", "b", "c", "c", "d", "d", "e", "f"] {
        taken.push(take(server).await);
    }
    let got: Vec<_> = taken.iter().map(Option::is_some).collect();
    assert_eq!(got.iter().filter(|got| **got).count(), TURNS_MAX);
    assert!(got[0] && got[1] && !got[2] && !got[9] && !got[10], "{got:?}");
    taken.remove(0);
    assert!(take("g").await.is_some(), "a turn that is given back is somebody else's");
    taken.clear();
    assert!(take("a").await.is_some());
    assert!(turns.by_server.lock().unwrap().len() <= 2, "servers that nobody asks are forgotten");
}

#[test]
fn a_secret_says_whose_crons_may_have_it_sent_somewhere() {
    let registry = json!({ "registry": { "url": "docker://a/b", "secretRef": "s" } });
    let http = json!({ "http": { "url": "https://a/b", "secretRef": "s" } });
    for (said, namespace, of_registry, of_http) in [
        (None, "cdi", true, false),
        (Some(""), "cdi", false, false),
        (Some("other"), "cdi", false, false),
        (Some("images-2,2-images,Images"), "cdi", false, false),
        (Some("other, images"), "cdi", true, true),
        (Some("*"), "cdi", true, true),
        // An import there gets the same one.
        (None, "images", true, true),
        (Some("other"), "images", true, true),
    ] {
        let metadata = json!({
            "name": "s", "namespace": namespace, "annotations": said.map(|said| json!({ key::POLL_FROM: said })),
        });
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        for (source, expected) in [(&registry, of_registry), (&http, of_http)] {
            let found = may_use(&metadata, &cron(source.clone(), json!({})));
            assert_eq!(found.is_ok(), expected, "{said:?} in {namespace} for {source}");
        }
    }
    let metadata = ObjectMeta { name: Some("s".into()), ..ObjectMeta::default() };
    let refused = may_use(&metadata, &cron(http, json!({}))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the Secret s in the namespace of the installation has to list images in its annotation \
         cdi.kubevirt.io/pollFrom"
    );
}
