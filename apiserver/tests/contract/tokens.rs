//! Upload tokens, for those whom the front proxy vouches for and who may have them.

use std::time::SystemTime;

use auth::token::{Claims, ISSUER_API_SERVER, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, KEY};
use crate::program::{Program, Signer};

const PATH: &str = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/ns/uploadtokenrequests";
const BODY: &str = r#"{"apiVersion":"upload.cdi.kubevirt.io/v1beta1","kind":"UploadTokenRequest","metadata":{"generateName":"t-"},"spec":{"pvcName":"disk"}}"#;
const RIGHT: &str = "anna create upload.cdi.kubevirt.io/uploadtokenrequests/ ns/";

fn anna(client: Client) -> Client {
    client.with("X-Remote-User", "anna").with("X-Remote-Group", "system:authenticated")
}

fn verifying(cluster: &Cluster) -> VerifyingKey {
    let key = cluster.get(KEY).unwrap();
    let key = STANDARD.decode(key["data"]["id_rsa.pub"].as_str().unwrap()).unwrap();
    VerifyingKey::from_pem(&key).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_whom_the_front_proxy_names_and_who_may_have_it() {
    let program = Program::start().await;
    program.cluster.allow(RIGHT);
    let answer = anna(program.front_proxy()).post(PATH, BODY).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    let object: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(object["metadata"]["generateName"], "t-");
    let token = object["status"]["token"].as_str().unwrap();
    let claims =
        verifying(&program.cluster).verify(token, ISSUER_API_SERVER, SystemTime::now()).unwrap();
    assert_eq!(claims, Claims::upload("ns", "disk"));

    let other = program.front.client("somebody");
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
        ("no right", bert(), 401, "no role says so"),
    ] {
        let answer = client.post(PATH, BODY).await;
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (status, body), "{case}");
    }
    for (case, path, body, status) in [
        ("no JSON", PATH, "x", 400),
        ("no claim", PATH, "{}", 400),
        ("a bad namespace", &PATH.replace("/ns/", "/N_S/"), BODY, 404),
    ] {
        let answer = anna(program.front_proxy()).post(path, body).await;
        assert_eq!(answer.status, status, "{case}");
    }
    let get = anna(program.front_proxy()).get(PATH).await;
    assert_eq!(get.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_somebody_else_opens_nothing() {
    let program = Program::start().await;
    program.cluster.allow(RIGHT);
    let stranger = Signer::new("front-proxy-ca").client("front-proxy");
    let answer = anna(program.client(Some(&stranger))).try_get("/healthz").await;
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(program.cluster.asked(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_cluster_is_made_once_and_kept() {
    let program = Program::start().await;
    let made = program.cluster.get(KEY).unwrap();
    assert_eq!(made["type"], "Opaque");
    assert_eq!(made["metadata"]["labels"]["cdi.kubevirt.io"], "keystore");
    assert_eq!(made["metadata"]["labels"]["app.kubernetes.io/part-of"], "testing");
    let private = STANDARD.decode(made["data"]["id_rsa"].as_str().unwrap()).unwrap();
    assert!(private.starts_with(b"-----BEGIN RSA PRIVATE KEY-----"));
    let front = Signer::new("front-proxy-ca");
    program.cluster.set(crate::cluster::AUTHENTICATION, crate::program::authentication(&front));
    let second = Program::start_with(program.cluster.clone(), front).await;
    second.cluster.allow(RIGHT);
    assert_eq!(second.cluster.get(KEY).unwrap()["data"], made["data"]);
    let answer = anna(second.front_proxy()).post(PATH, BODY).await;
    let object: Value = serde_json::from_str(&answer.body).unwrap();
    let token = object["status"]["token"].as_str().unwrap();
    assert!(
        verifying(&program.cluster).verify(token, ISSUER_API_SERVER, SystemTime::now()).is_ok()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_says_what_it_is() {
    let program = Program::start().await;
    let client = program.front_proxy();
    let get = async |path: &str| {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        serde_json::from_str::<Value>(&answer.body).unwrap()
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
