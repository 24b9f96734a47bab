//! Polling registries, web servers and object stores for a newer image, and the poller that writes the result.

use std::sync::Arc;
use std::time::Duration;

use importer::pod::{Paths, ProcessEnvironment};
use importer::{
    BasicAuth, HttpOptions, HttpValidators, KnownRevision, LatestImage, RetryPolicy, S3Credentials,
    S3Options, Secret, newest,
};
use parking_lot::Mutex;
use runtime::Flags;
use serde_json::{Value, json};
use testkit::{MIB, ServerCertificate, Stub, StubResponse, pattern};
use tests::container::{ContainerImage, digest};
use tests::registry::{DockerRegistry, Setup};

use crate::s3_server::{BUCKET, KEY_ID, S3Server, SECRET_KEY};

fn options() -> HttpOptions {
    let retry = RetryPolicy {
        attempts_max: 2,
        delay_first: Duration::from_millis(1),
        ..RetryPolicy::default()
    };
    HttpOptions { retry, ..HttpOptions::default() }
}

fn known(digest: &str) -> KnownRevision {
    KnownRevision { digest: digest.to_owned(), marks: HttpValidators::default() }
}

fn found(newest: LatestImage) -> KnownRevision {
    match newest {
        LatestImage::Found(known) => known,
        LatestImage::Unchanged => panic!("expected Unchanged"),
    }
}

#[test]
fn poll_follows_a_tag_in_a_real_registry() {
    let storage = tempfile::tempdir().unwrap();
    let Some(registry) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
    let images = [1, 2].map(|seed| ContainerImage::disk(&pattern(seed * MIB)));
    registry.push("golden", "latest", &images[0]);
    let location = format!("docker://{}/golden:latest", registry.host());
    let options = HttpOptions { insecure_hosts: vec![registry.host()], ..options() };
    let ask = |known: Option<&KnownRevision>| newest(&location, None, &options, known).unwrap();
    let first = found(ask(None));
    assert_eq!(first.digest, images[0].digest());
    assert_eq!(ask(Some(&first)), LatestImage::Unchanged);
    registry.push("golden", "latest", &images[1]);
    let second = found(ask(Some(&first)));
    assert_eq!(second.digest, images[1].digest());
    // What is found can be imported: the digest is that of the tag's own document, an index too.
    let index = tests::container::index(&[images[0].descriptor("amd64")]);
    registry.push_manifest("golden", "latest", "application/vnd.oci.image.index.v1+json", &index);
    assert_eq!(found(ask(Some(&second))).digest, digest(&index));
    let gone = format!("docker://{}/golden:gone", registry.host());
    let message = newest(&gone, None, &options, None).unwrap_err();
    let message = format!("{message}: {}", std::error::Error::source(&message).unwrap());
    assert!(message.contains("failed to pull image") && message.contains("404"), "{message}");
}

#[test]
fn poll_uses_the_credentials_and_cas_of_an_import() {
    let storage = tempfile::tempdir().unwrap();
    let image = ContainerImage::disk(&pattern(MIB));
    {
        let Some(open) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
        open.push("private", "v1", &image);
    }
    let tls = ServerCertificate::new();
    let setup = Setup { tls: Some(tls.clone()), basic_auth: true };
    let Some(registry) = DockerRegistry::start(storage.path(), &setup) else { return };
    let location = format!("docker://{}/private:v1", registry.host());
    let auth = |password: &str| {
        Some(BasicAuth { username: "anna".into(), password: Secret::new(password) })
    };
    let with = |password: &str, ca: &[String]| {
        let options = HttpOptions { auth: auth(password), ca_pem: ca.to_vec(), ..options() };
        newest(&location, None, &options, None)
    };
    let ca = [tls.ca.clone()];
    assert_eq!(found(with("open sesame", &ca).unwrap()).digest, image.digest());
    for (password, ca) in [("wrong hush", &ca[..]), ("open sesame", &ca[..0])] {
        let message = format!("{:?}", with(password, ca).unwrap_err());
        assert!(!message.contains("hush") && !message.contains("sesame"), "{message}");
    }
}

#[test]
fn poll_of_a_registry_needs_headers_only() {
    let bytes = ContainerImage::disk(&pattern(MIB)).manifest;
    let hash = digest(&bytes);
    /// By method, document and its digest.
    type Answers = fn(&str, &[u8], &str) -> StubResponse;
    let table: [(&str, Answers, &[&str]); 4] = [
        (
            "a digest in the headers",
            |_, _, hash| StubResponse::new(200, "").with("docker-content-digest", hash),
            &["HEAD"],
        ),
        (
            "no digest",
            |method, bytes, _| StubResponse::new(200, if method == "GET" { bytes } else { &[] }),
            &["HEAD", "GET"],
        ),
        (
            "no HEAD",
            |method, bytes, _| match method {
                "GET" => StubResponse::new(200, bytes),
                _ => StubResponse::new(405, ""),
            },
            &["HEAD", "GET"],
        ),
        (
            "a lie in the headers",
            |method, bytes, _| {
                let body = if method == "GET" { bytes } else { &[] };
                StubResponse::new(200, body).with("docker-content-digest", "sha256:12")
            },
            &["HEAD", "GET"],
        ),
    ];
    for (case, answers, expected) in table {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, bytes, of) = (Arc::clone(&asked), bytes.clone(), hash.clone());
        let stub = Stub::start(move |request| {
            if !request.target.contains("/manifests/") {
                return StubResponse::new(200, "{}");
            }
            noted.lock().push(request.method.clone());
            assert!(request.header("accept").is_some_and(|kinds| kinds.contains("image.index.v1")));
            answers(&request.method, &bytes, &of)
        });
        let host = stub.url("").trim_start_matches("http://").to_owned();
        let options = HttpOptions { insecure_hosts: vec![host.clone()], ..options() };
        let location = format!("docker://{host}/golden:latest");
        let result = newest(&location, None, &options, None);
        // The digest of the document counts where the headers hold no valid one.
        assert_eq!(found(result.unwrap()).digest, hash, "{case}");
        assert_eq!(*asked.lock(), expected, "{case}");
    }
}

#[test]
fn poll_is_conditional_if_the_registry_supports_it() {
    let hash = digest(b"x");
    let shown = hash.clone();
    let stub = Stub::start(move |request| {
        if !request.target.contains("/manifests/") {
            return StubResponse::new(200, "{}");
        }
        match request.header("if-none-match") {
            Some(etag) if etag == format!("\"{shown}\"") => StubResponse::new(304, ""),
            other => panic!("{other:?}"),
        }
    });
    let host = stub.url("").trim_start_matches("http://").to_owned();
    let options = HttpOptions { insecure_hosts: vec![host.clone()], ..options() };
    let location = format!("docker://{host}/golden:latest");
    let answer = newest(&location, None, &options, Some(&known(&hash))).unwrap();
    assert_eq!(answer, LatestImage::Unchanged);
}

#[test]
fn poll_of_a_web_server_compares_etag_or_date() {
    type Answers = fn(&testkit::StubRequest) -> StubResponse;
    let date = "Sat, 21 Nov 2026 07:00:00 GMT";
    let table: [(&str, Answers, &str); 5] = [
        ("tag", |_| StubResponse::new(206, "x").with("etag", "\"a\""), "etag:"),
        ("weak tag", |_| StubResponse::new(200, "xyz").with("etag", "W/\"a\""), "etag:"),
        (
            "date",
            |_| StubResponse::new(206, "x").with("last-modified", "Sat, 21 Nov 2026 07:00:00 GMT"),
            "date:",
        ),
        (
            "no parts",
            |asked| match asked.range() {
                Some(_) => StubResponse::new(400, ""),
                None => StubResponse::new(200, "xyz").with("etag", "\"a\""),
            },
            "etag:",
        ),
        ("empty", |_| StubResponse::new(416, "").with("etag", "\"a\""), "etag:"),
    ];
    let mut tags = Vec::new();
    for (case, answers, kind) in table {
        let stub = Stub::start(answers);
        let location = stub.url("/disk.img");
        let first = found(newest(&location, None, &options(), None).unwrap());
        assert!(
            first.digest.starts_with(kind) && first.digest.len() == 5 + 64,
            "{case}: {first:?}"
        );
        // A server that ignores conditional headers: the unchanged image is still recognized as unchanged.
        let again = newest(&location, None, &options(), Some(&first)).unwrap();
        assert_eq!(again, LatestImage::Unchanged, "{case}");
        tags.push(first);
    }
    assert_eq!(tags[0].digest, tags[1].digest, "weak or not");
    assert_eq!(tags[2].marks.modified.as_deref(), Some(date));
    let nothing = Stub::start(|_| StubResponse::new(206, "x"));
    let message = newest(&nothing.url("/a"), None, &options(), None).unwrap_err().to_string();
    assert!(message.contains("neither an entity tag nor a date"), "{message}");
}

#[test]
fn checksum_file_decides_if_configured() {
    let hash = digest(b"image");
    let line = format!("{}  disk.img\n", hash.trim_start_matches("sha256:"));
    let text = Arc::new(Mutex::new(line));
    let served = Arc::clone(&text);
    let stub = Stub::start(move |asked| match asked.target.as_str() {
        "/SHA256SUMS" => {
            assert_eq!(asked.header("authorization"), None, "another server's password");
            StubResponse::new(200, served.lock().clone())
        }
        other => panic!("{other}"),
    });
    let with_password = HttpOptions {
        auth: Some(BasicAuth { username: "anna".into(), password: Secret::new("hush") }),
        ..options()
    };
    let sums = stub.url("/SHA256SUMS");
    let location = "https://elsewhere.invalid/images/disk.img";
    let ask = |known: Option<&KnownRevision>| newest(location, Some(&sums), &with_password, known);
    let first = found(ask(None).unwrap());
    assert_eq!(first.digest, hash);
    assert_eq!(ask(Some(&first)).unwrap(), LatestImage::Unchanged);
    let other = digest(b"another");
    *text.lock() = format!("SHA256 (disk.img) = {}\n", other.trim_start_matches("sha256:"));
    assert_eq!(found(ask(Some(&first)).unwrap()).digest, other);
    *text.lock() = "nothing of use".into();
    let message = ask(None).unwrap_err().to_string();
    assert!(message.contains("does not list the image"), "{message}");
}

#[test]
fn poll_of_an_object_store_compares_etag() {
    let server = S3Server::private();
    server.put("disk.img", &pattern(MIB));
    let credentials = S3Credentials::Keys {
        access_key_id: KEY_ID.into(),
        secret_key: Secret::new(SECRET_KEY),
        session_token: None,
    };
    let s3 = S3Options { endpoint: Some(server.endpoint()), credentials, ..S3Options::default() };
    let options = HttpOptions { s3, ..options() };
    let location = format!("s3://{BUCKET}/disk.img");
    let ask = |known: Option<&KnownRevision>| newest(&location, None, &options, known).unwrap();
    let first = found(ask(None));
    assert_eq!(ask(Some(&first)), LatestImage::Unchanged);
    server.put("disk.img", &pattern(2 * MIB));
    assert_ne!(found(ask(Some(&first))).digest, first.digest);
}

#[test]
fn unsupported_poll_sources_are_refused() {
    for location in ["ftp://host/a", "disk.img", "oci-archive:a.tar", "docker://", "nbd://host/a"] {
        assert!(newest(location, None, &options(), None).is_err(), "{location}");
    }
}

/// A fake API server with one DataImportCron.
struct FakeApiServer {
    stub: Stub,
    noted: Arc<Mutex<Vec<Value>>>,
    folder: tempfile::TempDir,
}

impl FakeApiServer {
    fn start(digest: Option<String>) -> Self {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&noted);
        let stub = Stub::start_tls(move |asked| {
            if asked.header("authorization") != Some("Bearer hush-token") {
                return StubResponse::new(401, r#"{"message":"Unauthorized"}"#);
            }
            let path = "/apis/cdi.kubevirt.io/v1beta1/namespaces/images/dataimportcrons/fedora";
            match (asked.method.as_str(), asked.target == path) {
                (_, false) => {
                    StubResponse::new(404, r#"{"message":"dataimportcrons \"x\" not found"}"#)
                }
                ("GET", _) => {
                    let key = "cdi.kubevirt.io/storage.import.sourceDesiredDigest";
                    let annotations = digest.as_ref().map(|digest| json!({ key: digest }));
                    StubResponse::new(
                        200,
                        json!({ "metadata": { "annotations": annotations } }).to_string(),
                    )
                }
                _ => {
                    assert_eq!(asked.header("content-type"), Some("application/merge-patch+json"));
                    all.lock().push(serde_json::from_str(&asked.body).unwrap());
                    StubResponse::new(200, "{}")
                }
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let account = folder.path().join("var/run/secrets/kubernetes.io/serviceaccount");
        std::fs::create_dir_all(&account).unwrap();
        std::fs::write(account.join("token"), "hush-token\n").unwrap();
        std::fs::write(account.join("ca.crt"), stub.authority()).unwrap();
        Self { stub, noted, folder }
    }

    fn environment(&self) -> ProcessEnvironment {
        let address = self.stub.url("");
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        let variables = [
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT", port),
            ("INSECURE_TLS", "true".to_owned()),
        ];
        ProcessEnvironment {
            paths: Paths::under(self.folder.path()),
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }

    fn poll(&self, cron: &str, url: &str) -> Result<Vec<Value>, String> {
        self.poll_within("127.0.0.0/8", cron, url)
    }

    /// The same, with the addresses of this machine to which the poller may connect.
    fn poll_within(&self, allowed: &str, cron: &str, url: &str) -> Result<Vec<Value>, String> {
        let environment = self.environment();
        let arguments = ["-ns", "images", "-cron", cron, "-url", url, "-poll-allow-cidrs", allowed];
        let arguments = arguments.map(str::to_owned);
        let flags = Flags::parse(arguments, &importer::poller::FLAGS);
        importer::poller::run_poller(&flags, &environment).map_err(|error| error.to_string())?;
        Ok(std::mem::take(&mut *self.noted.lock()))
    }
}

#[test]
fn poller_refuses_loopback_registries() {
    let asked = Arc::<Mutex<usize>>::default();
    let count = Arc::clone(&asked);
    let registry = Stub::start(move |_| {
        *count.lock() += 1;
        StubResponse::new(200, "").with("Docker-Content-Digest", format!("sha256:{:064}", 1))
    });
    let host = registry.url("").trim_start_matches("http://").to_owned();
    let url = format!("docker://{host}/golden:latest");
    let cluster = FakeApiServer::start(None);
    // The API server is on this machine too, and is no matter of the tenant's address.
    assert!(cluster.poll_within("", "fedora", &url).is_err());
    assert!(cluster.noted.lock().is_empty());
    assert_eq!(*asked.lock(), 0);
    assert_eq!(cluster.poll("fedora", &url).unwrap().len(), 1);
}

#[test]
fn poller_writes_digest_and_time() {
    let storage = tempfile::tempdir().unwrap();
    let Some(registry) = DockerRegistry::start(storage.path(), &Setup::default()) else { return };
    let image = ContainerImage::disk(&pattern(MIB));
    registry.push("golden", "latest", &image);
    let url = format!("docker://{}/golden:latest", registry.host());
    let (last, digest) = (
        "cdi.kubevirt.io/storage.import.lastCronTime",
        "cdi.kubevirt.io/storage.import.sourceDesiredDigest",
    );
    for (known, expected) in [
        (None, Some(image.digest())),
        (Some("sha256:0123".to_owned()), Some(image.digest())),
        (Some(image.digest()), None),
    ] {
        let noted = FakeApiServer::start(known.clone()).poll("fedora", &url).unwrap();
        let [change] = noted.as_slice() else { panic!("{noted:?}") };
        let annotations = &change["metadata"]["annotations"];
        assert_eq!(annotations[digest].as_str(), expected.as_deref(), "{known:?}");
        assert!(annotations[last].as_str().is_some_and(|time| time.ends_with('Z')), "{change}");
    }
    // Without a response nothing is recorded, and the Job fails.
    let cluster = FakeApiServer::start(None);
    let message = cluster.poll("fedora", &url.replace(":latest", ":gone")).unwrap_err();
    assert!(message.contains("failed to pull image"), "{message}");
    assert!(cluster.noted.lock().is_empty());
    let message = cluster.poll("gone", &url).unwrap_err();
    assert!(message.contains("not found (status 404)") && !message.contains("hush"), "{message}");
}
