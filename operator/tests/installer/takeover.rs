//! An installation of upstream CDI is taken over in place.

use serde_json::{Value, json};

use crate::memory_api::MemoryApi;
use crate::memory_api::scenario::{CDI, Objects, Operator, installed_objects};
use crate::{APISERVER, CONTROLLER, MARKER, fail_each_request, status};

/// As upstream CDI's operator leaves it, with objects that differ from ours.
async fn upstream(objects: Objects) -> MemoryApi {
    let api = installed_objects("1.62.0", objects).await;
    api.edit(CDI, |cdi| cdi["status"]["observedVersion"] = "v1.62.0".into());
    api.edit(MARKER, |marker| {
        marker["metadata"].as_object_mut().unwrap().remove("annotations");
    });
    let keys: Vec<_> = api.0.lock().unwrap().objects.keys().cloned().collect();
    for key in keys.iter().filter(|key| *key != CDI && *key != MARKER) {
        api.edit(key, |object| {
            let last = "/metadata/annotations/operator.cdi.kubevirt.io~1lastAppliedConfiguration";
            let Some(last) = object.pointer_mut(last) else { return };
            let mut other: Value = serde_json::from_str(last.as_str().unwrap()).unwrap();
            other["spec"]["upstream"] = 1.into();
            *last = other.to_string().into();
            object["spec"]["upstream"] = 1.into();
        });
    }
    api.edit(CONTROLLER, |object| {
        object["spec"]["selector"]["matchLabels"]["upstream"] = "yes".into();
    });
    api
}

#[tokio::test]
async fn takeover_keeps_secrets_and_settings_and_replaces_the_rest() {
    let api = upstream(Objects::All).await;
    let secret =
        |api: &MemoryApi| api.get("/secrets/cdi/cdi-apiserver-signer").unwrap()["data"].clone();
    let certificate = secret(&api);
    let account = "/serviceaccounts/cdi/cdi-sa";
    let (account_uid, controller_uid) = {
        let uid = |key: &str| api.get(key).unwrap()["metadata"]["uid"].clone();
        (uid(account), uid(CONTROLLER))
    };
    let spec = api.get(CDI).unwrap()["spec"].clone();
    // Our number is lower than upstream's, and that is no downgrade.
    let mut operator = Operator::new(&api, "0.2.0");
    operator.pass().await.unwrap();
    assert_eq!(status(&api, "phase"), "Upgrading");
    operator.converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
    assert_eq!(status(&api, "observedVersion"), "0.2.0");
    assert_eq!(secret(&api), certificate);
    assert_eq!(api.get(CDI).unwrap()["spec"], spec);
    assert_eq!(api.get(account).unwrap()["metadata"]["uid"], account_uid);
    let controller = api.get(CONTROLLER).unwrap();
    assert_ne!(controller["metadata"]["uid"], controller_uid, "its selector is immutable");
    assert_eq!(controller["spec"]["selector"]["matchLabels"].get("upstream"), None);
    let apiserver = api.get(APISERVER).unwrap();
    assert_eq!(
        apiserver["spec"].get("upstream"),
        None,
        "fields that were applied before are removed"
    );
    Operator::new(&api, "0.2.0").pass().await.unwrap();
    assert!(api.writes().is_empty());
}

/// As upstream CDI's: no hook keeps the pod until it has left its Service.
fn put_api_server_pod(api: &MemoryApi, hash: &str, container: Value) -> String {
    let key = format!("/pods/cdi/cdi-apiserver-{hash}-x");
    // The UID of an object that is there, so that the pod is not garbage.
    let uid = api.get(APISERVER).unwrap()["metadata"]["uid"].clone();
    let owner = json!({ "kind": "ReplicaSet", "name": format!("cdi-apiserver-{hash}"), "uid": uid, "controller": true });
    api.put(
        &key,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "labels": { "cdi.kubevirt.io": "cdi-apiserver", "pod-template-hash": hash },
                "ownerReferences": [owner],
            },
            "spec": { "containers": [container] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
    );
    key
}

#[tokio::test]
async fn takeover_routes_requests_past_pods_that_end_abruptly() {
    const SERVICE: &str = "/services/cdi/cdi-api";
    let api = upstream(Objects::All).await;
    let old = put_api_server_pod(&api, "old", json!({ "name": "cdi-apiserver" }));
    let mut operator = Operator::new(&api, "0.2.0");
    let state = || {
        let selector = api.get(SERVICE).unwrap()["spec"]["selector"].clone();
        let spec = api.get(APISERVER).unwrap()["spec"].clone();
        (selector, spec["minReadySeconds"].clone())
    };
    let plain = json!({ "cdi.kubevirt.io": "cdi-apiserver" });
    operator.converge().await;
    assert_eq!(state(), (plain.clone(), json!(15)), "the new pod is not there yet");

    let template = api.get(APISERVER).unwrap()["spec"]["template"].clone();
    let new = put_api_server_pod(&api, "new", template["spec"]["containers"][0].clone());
    operator.converge().await;
    let narrow = json!({ "cdi.kubevirt.io": "cdi-apiserver", "pod-template-hash": "new" });
    assert_eq!(state(), (narrow, json!(15)));
    assert_eq!(status(&api, "phase"), "Upgrading");

    // The Deployment's controller deletes the old pod. Another operator process goes on.
    api.delete(&old);
    Operator::new(&api, "0.2.0").converge().await;
    assert_eq!(state(), (plain, Value::Null));
    assert_eq!(status(&api, "phase"), "Deployed");
    api.delete(&new);
    Operator::new(&api, "0.2.0").pass().await.unwrap();
    assert!(api.writes().is_empty());
}

#[tokio::test]
async fn takeover_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&upstream(objects).await, "0.2.0", objects).await;
    }
}
