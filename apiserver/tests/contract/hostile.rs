//! Hostile requests get a response in bounded memory, and the program keeps running.

use bytes::Bytes;
use http::Method;

use crate::program::Program;

const HOOKS: [&str; 7] = [
    "/datavolume-validate",
    "/datavolume-mutate",
    "/dataimportcron-validate",
    "/populator-validate",
    "/cdi-validate",
    "/objecttransfer-validate",
    "/pvc-mutate",
];

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_refuse_bodies_that_are_not_reviews() {
    let program = Program::start().await;
    let client = program.client(None);
    let json = "application/json";
    let review = |request: &str| {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}"#
        )
    };
    let one = r#"{"uid":"1"}"#;
    let deep = review(&format!(r#"{{"object":{}"#, "[".repeat(1 << 20)));
    let bodies: Vec<(&str, String, u16)> = vec![
        (json, String::new(), 400),
        (json, "{".into(), 400),
        (json, "null".into(), 400),
        (json, r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#.into(), 400),
        (json, review("[]"), 400),
        (json, deep, 413),
        (json, review("{}"), 400),
        (json, review(one), 200), // refused, as an response
        ("text/yaml", review(one), 415),
        ("", review(one), 415),
        ("application/json; charset=utf-8", review(one), 200),
    ];
    for hook in HOOKS {
        for (kind, body, expected) in &bodies {
            let body = Bytes::from(body.clone());
            let shown = body.slice(..body.len().min(60));
            let response = client.try_call(Method::POST, hook, kind, body).await.unwrap();
            assert_eq!(response.status.as_u16(), *expected, "{hook} {kind} {shown:?}");
            if *expected == 200 && hook != "/datavolume-mutate" {
                assert!(response.body.contains(r#""allowed":false"#), "{hook}: {}", response.body);
            }
        }
        assert_eq!(client.get(hook).await.status, 405, "{hook}");
    }
    assert_eq!(client.get("/healthz").await.body, "OK");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_body_is_refused() {
    let program = Program::start().await;
    let client = program.client(None);
    let long = Bytes::from(vec![b' '; 9 << 20]);
    // The answer comes before all is sent, so the connection may break as well.
    let response =
        client.try_call(Method::POST, "/datavolume-validate", "application/json", long).await;
    assert!(
        response.as_ref().is_ok_and(|response| response.status == 413) || response.is_err(),
        "{response:?}"
    );
    assert_eq!(client.get("/healthz").await.body, "OK");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_paths_are_not_served_and_sigterm_stops_the_program() {
    let program = Program::start().await;
    let client = program.client(None);
    for path in
        ["/metrics", "/datavolume-validate/", "/apis/cdi.kubevirt.io", "/api", "/../etc/passwd"]
    {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(program.stop().await, Some(0));
}
