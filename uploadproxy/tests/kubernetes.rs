//! The Kubernetes implementation against a stub of the API server.

#![allow(clippy::unwrap_used)] // clippy allows it in test functions only, and not in their helpers

use auth::TlsMinimum;
use kube::{Client, Config};
use testkit::{Stub, StubRequest, StubResponse};
use uploadproxy::{ClusterApi, KubernetesApi, TargetPvc};

const CLAIM: &str = r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim",
    "metadata":{"name":"disk","namespace":"ns","resourceVersion":"7","annotations":{"a":"b"}},
    "spec":{"dataSourceRef":{"apiGroup":"cdi.kubevirt.io","kind":"VolumeUploadSource","name":"s"}}}"#;
const BUNDLE: &str = r#"{"apiVersion":"v1","kind":"ConfigMap",
    "metadata":{"name":"bundle"},"data":{"ca-bundle.crt":"PEM"}}"#;
const CONFIGS: &str = r#"{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfigList",
    "metadata":{"resourceVersion":"3"},"items":[{"apiVersion":"cdi.kubevirt.io/v1beta1","kind":"CDIConfig",
    "metadata":{"name":"config","resourceVersion":"3"},"spec":{"tlsSecurityProfile":{"type":"Modern"}}}]}"#;

fn status(code: u16) -> StubResponse {
    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Status","metadata":{{}},"status":"Failure","message":"no","reason":"{reason}","code":{code}}}"#
    );
    StubResponse::new(code, json).with("content-type", "application/json")
}

fn answer(asked: &StubRequest) -> StubResponse {
    let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
    let json = |text: &str| StubResponse::new(200, text).with("content-type", "application/json");
    match path {
        "/api/v1/namespaces/ns/persistentvolumeclaims/disk" => json(CLAIM),
        "/api/v1/namespaces/ns/persistentvolumeclaims"
            if query.contains("metadata.name%3Ddisk") =>
        {
            assert!(query.contains("resourceVersion=7"), "{query}");
            let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, CLAIM.replace('\n', ""));
            json(&format!("{event}\n"))
        }
        "/api/v1/namespaces/secret/persistentvolumeclaims/disk" => status(403),
        "/api/v1/namespaces/cdi/configmaps/bundle" => json(BUNDLE),
        "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs" if query.contains("watch") => json(""),
        "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs" => json(CONFIGS),
        _ => status(404),
    }
}

fn client(stub: &Stub) -> Client {
    let mut config = Config::new(stub.url("").parse().unwrap());
    config.default_namespace = "cdi".into();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn pvcs_and_cas_are_read() {
    let stub = Stub::start(answer);
    let (cluster, _following) = KubernetesApi::new(client(&stub), "bundle");
    let claim = cluster.claim("ns", "disk").await.unwrap().unwrap();
    let expected = TargetPvc {
        namespace: "ns".into(),
        name: "disk".into(),
        version: "7".into(),
        annotations: [("a".to_owned(), "b".to_owned())].into(),
        is_populated: true,
    };
    assert_eq!(claim, expected);
    cluster.changed(&claim).await;
    assert_eq!(cluster.claim("ns", "gone").await.unwrap(), None);
    // An invalid name is not requested.
    for (namespace, name) in [("ns", "../../secrets"), ("n/s", "disk"), ("", "disk"), ("ns", "")] {
        assert_eq!(cluster.claim(namespace, name).await.unwrap(), None);
    }
    let error = cluster.claim("secret", "disk").await.unwrap_err();
    assert_eq!(error.to_string(), "cannot read the PVC");
    assert_eq!(cluster.upload_server_cas().await.unwrap(), "PEM");
    assert_eq!(cluster.address("s.ns.svc"), "s.ns.svc:8443");
    let (other, _following) = KubernetesApi::new(client(&stub), "other");
    assert!(other.upload_server_cas().await.is_err());
}

#[tokio::test]
async fn pvcs_are_polled_if_watching_is_forbidden() {
    let stub = Stub::start(|_| status(403));
    let (cluster, _following) = KubernetesApi::new(client(&stub), "bundle");
    let claim = TargetPvc { namespace: "ns".into(), name: "disk".into(), ..TargetPvc::default() };
    cluster.changed(&claim).await;
}

#[tokio::test]
async fn tls_settings_are_watched() {
    let stub = Stub::start(answer);
    let (cluster, following) = KubernetesApi::new(client(&stub), "bundle");
    let mut tls_minimum = cluster.tls_minimum();
    assert_eq!(*tls_minimum.borrow(), TlsMinimum::default());
    let suites = "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256";
    let modern = TlsMinimum::parse("VersionTLS13", suites).unwrap();
    tokio::select! {
        found = tls_minimum.wait_for(|tls_minimum| *tls_minimum == modern) => assert!(found.is_ok()),
        never = following => match never {},
    }
}
