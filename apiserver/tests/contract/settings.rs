//! Settings of the cluster that change while the program runs.

use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::cluster::{AUTHENTICATION, CONFIG};
use crate::program::{Program, Signer, authentication};

/// Waits until it is so: a change takes effect after its watch event.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_front_proxy_ca_is_used_without_restart() {
    let program = Program::start().await;
    let next = Signer::new("another-front-proxy-ca");
    let identity = next.client("front-proxy");
    assert!(program.client(Some(&identity)).try_get("/healthz").await.is_err());
    program.cluster.set(AUTHENTICATION, authentication(&next));
    eventually("the new one is believed", async || {
        program.client(Some(&identity)).try_get("/healthz").await.is_ok()
    })
    .await;
    let old = program.front_proxy();
    eventually("the old one is not", async || old.try_get("/healthz").await.is_err()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_tls_minimum_is_enforced() {
    let program = Program::start().await;
    let old = || {
        Client::new(program.address, &program.signer.certificate, None, &[&rustls::version::TLS12])
    };
    assert_eq!(old().get("/healthz").await.body, "OK");
    let profile = |kind: &str| json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": {}, "spec": { "tlsSecurityProfile": { "type": kind } } });
    program.cluster.set(CONFIG, profile("Modern"));
    eventually("TLS 1.2 is refused", async || old().try_get("/healthz").await.is_err()).await;
    let refused = old().try_get("/healthz").await.unwrap_err();
    assert!(refused.to_string().contains("ProtocolVersion"), "{refused}");
    assert_eq!(program.client(None).get("/healthz").await.body, "OK");
    program.cluster.set(CONFIG, profile("Old"));
    eventually("TLS 1.2 is taken again", async || old().try_get("/healthz").await.is_ok()).await;
}
