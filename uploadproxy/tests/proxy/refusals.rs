//! Path × method × token × PVC → status, headers and body.

use std::time::{Duration, SystemTime};

use auth::token::{
    Claims, ISSUER_API_SERVER, ISSUER_CONTROLLER, KeyTexts, LIFETIME, Operation, Resource,
    SigningKey,
};
use testkit::RawResponse;

use crate::world::{CONTENT, DONE, NAMESPACE, PRIME, READY, TARGET, TestCluster};

const PATH: &str = "/v1beta1/upload";
const PAGE: &str = "Origin: https://console.example\r\n";

/// Every response has CORS headers.
#[track_caller]
fn check(answer: &RawResponse, status: u16, body: &str, case: &str) {
    assert_eq!((answer.status, answer.body.as_str()), (status, body), "{case}");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{case}");
}

#[test]
fn other_paths_need_no_token() {
    let cluster = TestCluster::new();
    let client = cluster.client();
    for method in ["GET", "HEAD", "POST"] {
        let body = if method == "HEAD" { "" } else { "OK" };
        check(&client.ask(method, "/healthz", PAGE), 200, body, method);
    }
    for path in ["/", "/v1beta1/upload-archive", "/v1beta1/upload/", "/v2/upload", "/metrics"] {
        for method in ["GET", "HEAD", "POST", "PUT"] {
            check(&client.ask(method, path, PAGE), 404, "", path);
        }
    }
    let without = client.ask("GET", "/healthz", "");
    assert_eq!(without.header("access-control-allow-origin"), None);
}

#[test]
fn preflight_is_allowed() {
    let cluster = TestCluster::new();
    let asks = "Access-Control-Request-Method: POST\r\n\
                Access-Control-Request-Headers: authorization,content-type\r\n";
    for path in [PATH, "/v1alpha1/upload-form-async", "/anything"] {
        let answer = cluster.client().ask("OPTIONS", path, &[PAGE, asks].concat());
        check(&answer, 200, "", path);
        let header = |name| answer.header(name);
        let methods = header("access-control-allow-methods").unwrap();
        for method in ["HEAD", "GET", "POST", "PUT", "PATCH", "DELETE"] {
            assert!(methods.contains(method), "{methods}");
        }
        assert_eq!(header("access-control-allow-headers"), Some("authorization,content-type"));
        assert_eq!(header("access-control-allow-credentials"), None);
    }
    // Without the preflight headers it is an ordinary request.
    check(&cluster.client().ask("OPTIONS", PATH, PAGE), 400, "", "no preflight");
}

#[test]
fn requests_without_a_valid_token_are_refused() {
    let cluster = TestCluster::new();
    let server = cluster.ready("disk");
    let now = SystemTime::now();
    let good = Claims::upload(NAMESPACE, "disk");
    let another = KeyTexts::generate().unwrap();
    let another = SigningKey::from_pem(another.private.as_bytes()).unwrap();
    let by = |key: &SigningKey, issuer, at| {
        let token = key.sign(&good, issuer, LIFETIME, at).unwrap();
        format!("Authorization: Bearer {token}\r\n")
    };
    let with = |change: fn(&mut Claims)| {
        let mut claims = good.clone();
        change(&mut claims);
        cluster.sign(&claims, now)
    };
    let long_ago = now - LIFETIME - Duration::from_secs(60);
    let table = [
        ("no token", String::new(), 400),
        ("another scheme", "Authorization: Basic eDp5\r\n".into(), 400),
        ("no characters of a token", "Authorization: Bearer a b\r\n".into(), 400),
        ("nothing that is signed", "Authorization: Bearer abc\r\n".into(), 401),
        ("an expired one", by(&cluster.key, ISSUER_API_SERVER, long_ago), 401),
        ("one of tomorrow", by(&cluster.key, ISSUER_API_SERVER, now + LIFETIME), 401),
        ("another issuer's", by(&cluster.key, ISSUER_CONTROLLER, now), 401),
        ("another key's", by(&another, ISSUER_API_SERVER, now), 401),
        ("one for a clone", with(|claims| claims.operation = Operation::Clone), 400),
        ("one for anything", with(|claims| claims.operation = Operation::Other), 400),
        ("one for a snapshot", with(|claims| claims.resource = Resource::snapshots()), 400),
        ("one for no name", with(|claims| claims.name.clear()), 400),
        ("one for no namespace", with(|claims| claims.namespace.clear()), 400),
    ];
    for (case, token, status) in table {
        for path in [PATH, "/v1alpha1/upload-form-async"] {
            let headers = [PAGE, &token].concat();
            check(&cluster.client().post(path, &headers, b"a disk"), status, "", case);
            check(&cluster.client().ask("HEAD", path, &headers), status, "", case);
        }
    }
    let elsewhere = cluster.sign(&Claims::upload("other", "disk"), now);
    let expected = "rejecting Upload Request for PVC disk that doesn&#39;t exist";
    check(
        &cluster.client().post(PATH, &[PAGE, &elsewhere].concat(), b"x"),
        503,
        expected,
        "elsewhere",
    );
    assert_eq!(server.disk(), None);
}

#[test]
fn refusals_name_the_reason() {
    let cluster = TestCluster::new();
    let done = "rejecting Upload Request for PVC disk that already finished uploading";
    let no_target = "PVC disk is not an upload target";
    let no_prime = "rejecting Upload Request for PVC disk, PVC&#39; wasn&#39;t created yet";
    let markup = "rejecting upload request for PVC disk - upload content-type \
                  &lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; is invalid";
    let script = (CONTENT, "<script>alert('x')</script>");
    cluster.set_pvc("prime-done", false, &[TARGET, READY, DONE]);
    cluster.set_pvc("prime-other", false, &[READY]);
    let prime = |name| (PRIME, name);
    let table: [(&str, bool, &[(&str, &str)], &str); 9] = [
        ("no target", false, &[READY], no_target),
        ("finished", false, &[TARGET, READY, DONE], done),
        ("a content of its own", false, &[TARGET, READY, script], markup),
        ("finished by way of another", true, &[DONE], done),
        ("another that is not there", true, &[prime("prime-gone")], no_prime),
        ("another that is finished", true, &[prime("prime-done")], done),
        ("another that is no target", true, &[prime("prime-other")], no_target),
        ("another of no matter", false, &[prime("prime-done")], no_target),
        ("a target by way of another", true, &[TARGET, READY, prime("prime-other")], no_target),
    ];
    let headers = [PAGE, &cluster.token("disk")].concat();
    let missing = "rejecting Upload Request for PVC disk that doesn&#39;t exist";
    check(&cluster.client().post(PATH, &headers, b"x"), 503, missing, "missing");
    for (case, is_populated, annotations, expected) in table {
        cluster.set_pvc("disk", is_populated, annotations);
        let answer = cluster.client().post(PATH, &headers, b"x");
        check(&answer, 503, expected, case);
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{case}");
    }
}

#[test]
fn missing_server_is_a_bad_gateway() {
    let cluster = TestCluster::new();
    cluster.set_pvc("disk", false, &[TARGET, READY]);
    let headers = [PAGE, &cluster.token("disk")].concat();
    let answer = cluster.client().post(PATH, &headers, b"x");
    assert_eq!(answer.status, 502);
    let expected = "error in upload-proxy: http: proxy error: ";
    assert!(answer.body.starts_with(expected), "{}", answer.body);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    // Nor is one that cannot prove its name.
    let other = cluster.server("other", |_| ());
    cluster.redirect_server("other", "disk");
    assert_eq!(cluster.client().post(PATH, &headers, b"x").status, 502);
    assert_eq!(other.disk(), None);
}
