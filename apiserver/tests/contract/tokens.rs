//! Upload tokens, for authorized users of the front proxy.

use std::time::SystemTime;

use auth::token::{Claims, ISSUER_API_SERVER, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{KEY, TestCluster};
use crate::program::{Program, Signer};

const PATH: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/ns/uploadtokenrequests";
const BODY: &str = r#"{"apiVersion":"upload.cdi.kubevirt.io/v1beta1","kind":"UploadTokenRequest","metadata":{"generateName":"t-"},"spec":{"pvcName":"disk"}}"#;
const RIGHT: &str = "anna create upload.cdi.kubevirt.io/uploadtokenrequests/ ns/";

fn anna(client: Client) -> Client {
    client.with("X-Remote-User", "anna").with("X-Remote-Group", "system:authenticated")
}

fn verifying(cluster: &TestCluster) -> VerifyingKey {
    let key = cluster.get(KEY).unwrap();
    let key = STANDARD.decode(key["data"]["id_rsa.pub"].as_str().unwrap()).unwrap();
    VerifyingKey::from_pem(&key).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_issued_to_an_authorized_user_of_the_front_proxy() {
    let program = Program::start().await;
    program.cluster.allow(RIGHT);
    let response = anna(program.front_proxy()).post(PATH, BODY).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.headers["x-content-type-options"], "nosniff");
    let object: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(object["metadata"]["generateName"], "t-");
    let token = object["status"]["token"].as_str().unwrap();
    let claims =
        verifying(&program.cluster).verify(token, ISSUER_API_SERVER, SystemTime::now()).unwrap();
    assert_eq!(claims, Claims::upload("ns", "disk"));

    let other = program.front.client("unknown");
    let bert = || program.front_proxy().with("X-Remote-User", "bert").with("X-Remote-Group", "a");
    for (case, client, status, body) in [
        ("no certificate", anna(program.client(None)), 401, "request is not authenticated"),
        ("another name", anna(program.client(Some(&other))), 401, "request is not authenticated"),
        ("no user", program.front_proxy(), 401, "request is not authenticated"),
        (
            "no group",
            program.front_proxy().with("X-Remote-User", "anna"),
            401,
            "request is not authenticated",
        ),
        ("no right", bert(), 401, "no role allows it"),
    ] {
        let response = client.post(PATH, BODY).await;
        assert_eq!((response.status.as_u16(), response.body.as_str()), (status, body), "{case}");
    }
    for (case, path, body, status) in [
        ("no JSON", PATH, "x", 400),
        ("no claim", PATH, "{}", 400),
        ("a bad namespace", &PATH.replace("/ns/", "/N_S/"), BODY, 404),
    ] {
        let response = anna(program.front_proxy()).post(path, body).await;
        assert_eq!(response.status, status, "{case}");
    }
    let get = anna(program.front_proxy()).get(PATH).await;
    assert_eq!(get.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_another_ca_is_rejected() {
    let program = Program::start().await;
    program.cluster.allow(RIGHT);
    let stranger = Signer::new("front-proxy-ca").client("front-proxy");
    let response = anna(program.client(Some(&stranger))).try_get("/healthz").await;
    assert!(response.is_err(), "{response:?}");
    assert_eq!(program.cluster.reviews(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_key_is_created_once() {
    let program = Program::start().await;
    let created = program.cluster.get(KEY).unwrap();
    assert_eq!(created["type"], "Opaque");
    assert_eq!(created["metadata"]["labels"]["cdi.kubevirt.io"], "keystore");
    assert_eq!(created["metadata"]["labels"]["app.kubernetes.io/part-of"], "testing");
    let private = STANDARD.decode(created["data"]["id_rsa"].as_str().unwrap()).unwrap();
    assert!(private.starts_with(b"-----BEGIN RSA PRIVATE KEY-----"));
    let front = Signer::new("front-proxy-ca");
    program.cluster.set(crate::cluster::AUTHENTICATION, crate::program::authentication(&front));
    let second = Program::start_with(program.cluster.clone(), front).await;
    second.cluster.allow(RIGHT);
    assert_eq!(second.cluster.get(KEY).unwrap()["data"], created["data"]);
    let response = anna(second.front_proxy()).post(PATH, BODY).await;
    let object: Value = serde_json::from_str(&response.body).unwrap();
    let token = object["status"]["token"].as_str().unwrap();
    assert!(
        verifying(&program.cluster).verify(token, ISSUER_API_SERVER, SystemTime::now()).is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_documents_are_served() {
    let program = Program::start().await;
    let client = program.front_proxy();
    let get = async |path: &str| {
        let response = client.get(path).await;
        assert_eq!(response.status, 200, "{path}");
        serde_json::from_str::<Value>(&response.body).unwrap()
    };
    assert!(
        get("/").await["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/upload.cdi.kubevirt.io/v1beta1"))
    );
    let groups = get("/apis").await;
    assert_eq!(
        (&groups["kind"], &groups["groups"][0]["name"]),
        (&json!("APIGroupList"), &json!("upload.cdi.kubevirt.io"))
    );
    let group = get("/apis/upload.cdi.kubevirt.io").await;
    assert_eq!(group["preferredVersion"]["groupVersion"], "upload.cdi.kubevirt.io/v1beta1");
    assert_eq!(
        group["serverAddressByClientCIDRs"],
        json!([{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }])
    );
    let resource = get("/apis/upload.cdi.kubevirt.io/v1beta1").await["resources"][0].clone();
    assert_eq!(resource["name"], "uploadtokenrequests");
    assert_eq!(
        (&resource["namespaced"], &resource["verbs"], &resource["shortNames"]),
        (&json!(true), &json!(["create"]), &json!(["utr", "utrs"]))
    );
    let document = get("/openapi/v2").await;
    assert!(
        document["definitions"]["v1beta1.UploadTokenRequest"]["properties"]["spec"].is_object()
    );
}
