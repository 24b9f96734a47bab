//! Webhooks restricted to clients with a certificate.

use std::time::Duration;

use serde_json::json;

use crate::cluster::{AUTHENTICATION, TestCluster};
use crate::program::{Program, Signer, authentication};

const TOKENS: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/target/uploadtokenrequests";

async fn start(webhooks: &Signer, names: &str) -> Program {
    let front = Signer::new("front-proxy-ca");
    let cluster = TestCluster::start().await;
    cluster.set(AUTHENTICATION, authentication(&front));
    let (ca, names) = (webhooks.certificate.clone(), names.to_owned());
    Program::start_with_flags(cluster, front, move |folder| {
        let path = folder.join("webhook-ca.crt");
        std::fs::write(&path, ca).unwrap();
        let path = path.display();
        vec![format!("-webhook-client-ca={path}"), format!("-webhook-client-names={names}")]
    })
    .await
}

fn review() -> String {
    let object = json!({ "metadata": { "name": "s" }, "spec": { "source": { "blank": {} } } });
    let request = json!({
        "uid": "1", "operation": "CREATE", "namespace": "target", "object": object,
        "resource": { "group": "cdi.kubevirt.io", "resource": "volumeuploadsources" },
    });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_accept_only_named_clients_of_their_ca() {
    let webhooks = Signer::new("webhook-client-ca");
    let program = start(&webhooks, "apiserver, another").await;
    let call = async |identity: Option<&auth::Identity>| {
        program.client(identity).post("/populator-validate", &review()).await.status.as_u16()
    };
    assert_eq!(call(Some(&webhooks.client("apiserver"))).await, 200);
    assert_eq!(call(Some(&webhooks.client("another"))).await, 200);
    assert_eq!(call(Some(&webhooks.client("unknown"))).await, 403);
    assert_eq!(call(Some(&program.front.client("front-proxy"))).await, 403);
    assert_eq!(call(Some(&program.front.client("apiserver"))).await, 403);
    assert_eq!(call(None).await, 403);
    // Probes show none, and are answered.
    assert_eq!(program.client(None).get("/healthz").await.body, "OK");
}

/// A certificate of the webhook CA does not permit naming a user.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_client_cannot_act_as_the_front_proxy() {
    let webhooks = Signer::new("webhook-client-ca");
    let program = start(&webhooks, "").await;
    program.cluster.allow("anna create upload.cdi.kubevirt.io/uploadtokenrequests/ target/");
    let ask = async |identity: &auth::Identity| {
        let client = program.client(Some(identity));
        let client = client.with("x-remote-user", "anna").with("x-remote-group", "a");
        client.post(TOKENS, r#"{"spec":{"pvcName":"disk"}}"#).await.status.as_u16()
    };
    assert_eq!(ask(&program.front.client("front-proxy")).await, 200);
    assert_eq!(ask(&webhooks.client("front-proxy")).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_webhook_ca_is_used_without_restart() {
    let (webhooks, next) = (Signer::new("webhook-client-ca"), Signer::new("next-ca"));
    let program = start(&webhooks, "").await;
    let client = next.client("apiserver");
    assert!(program.client(Some(&client)).try_get("/healthz").await.is_err());
    program.write("webhook-ca.crt", "nothing");
    program.write("webhook-ca.crt", &next.certificate);
    for _ in 0..600 {
        if program.client(Some(&client)).try_get("/healthz").await.is_ok() {
            let response =
                program.client(Some(&client)).post("/populator-validate", &review()).await;
            assert_eq!(response.status, 200);
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the file is not read again");
}
