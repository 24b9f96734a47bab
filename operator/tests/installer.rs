//! Whole installations against an API server in memory: installed, kept, upgraded, taken over and removed.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod memory_api;

use memory_api::scenario::{
    CDI, Objects, Operator, cdi, cluster, environment, installed, installed_objects,
};
use memory_api::{Failure, MemoryApi};
use operator::desired::OperatorEnvironment;
use serde_json::{Value, json};

const MARKER: &str = "/configmaps/cdi/cdi-config";
const CONTROLLER: &str = "apps/deployments/cdi/cdi-deployment";
const APISERVER: &str = "apps/deployments/cdi/cdi-apiserver";

fn conditions(api: &MemoryApi) -> [(String, String); 3] {
    let cdi = api.get(CDI).unwrap();
    let all = cdi["status"]["conditions"].as_array().unwrap().clone();
    ["Available", "Progressing", "Degraded"].map(|type_| {
        let condition = all.iter().find(|one| one["type"] == type_).unwrap();
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    })
}

fn states(expected: [(&str, &str); 3]) -> [(String, String); 3] {
    expected.map(|(status, reason)| (status.to_owned(), reason.to_owned()))
}

fn status(api: &MemoryApi, field: &str) -> String {
    api.get(CDI).unwrap()["status"][field].as_str().unwrap_or_default().to_owned()
}

/// All objects without what differs between two runs: times, UIDs, versions, and the bytes of certificates.
fn comparable(api: &MemoryApi) -> Vec<(String, Value)> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for field in [
                    "uid",
                    "resourceVersion",
                    "generation",
                    "observedGeneration",
                    "lastHeartbeatTime",
                    "lastTransitionTime",
                    "caBundle",
                    "operator.cdi.kubevirt.io/updateVersion",
                    "auth.openshift.io/certificate-not-before",
                    "auth.openshift.io/certificate-not-after",
                    "auth.openshift.io/certificate-issuer",
                ] {
                    fields.remove(field);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let state = api.0.lock().unwrap();
    let mut all: Vec<_> =
        state.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
    for (key, object) in &mut all {
        strip(object);
        if key.starts_with("/secrets/") || key.starts_with("/configmaps/") {
            object["data"] = Value::Null;
        }
    }
    all
}

#[tokio::test]
async fn installation_creates_all_objects_and_becomes_available() {
    let api = cluster();
    let mut operator = Operator::new(&api, "1.0.0");
    operator.pass().await.unwrap();
    assert_eq!(status(&api, "phase"), "Deploying");
    assert_eq!(conditions(&api), states([("False", ""), ("True", "DeployStarted"), ("False", "")]));
    assert_eq!(status(&api, "observedVersion"), "");
    let writes = api.writes();
    let position = |name: &str| writes.iter().position(|write| write.ends_with(name)).unwrap();
    assert!(position(MARKER) < position("cdi-apiserver-signer"), "{writes:?}");
    // Pods mount the certificates.
    assert!(position("cdi-apiserver-server-cert") < position(APISERVER), "{writes:?}");

    operator.converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
    for version in ["operatorVersion", "targetVersion", "observedVersion"] {
        assert_eq!(status(&api, version), "1.0.0", "{version}");
    }
    assert_eq!(
        conditions(&api),
        states([("True", "DeployCompleted"), ("False", ""), ("False", "")])
    );
    let installation = api.get(CDI).unwrap();
    assert_eq!(installation["metadata"]["finalizers"], json!(["operator.cdi.kubevirt.io"]));
    assert_eq!(installation["metadata"]["annotations"]["cdi.kubevirt.io/configAuthority"], "");
    let reasons = api.event_reasons();
    assert!(reasons.contains(&"DeployStarted".to_owned()));
    assert!(reasons.contains(&"CreateResourceSuccess".to_owned()));
    assert_eq!(reasons.last().unwrap(), "DeployCompleted");

    let uid = &installation["metadata"]["uid"];
    let state = api.0.lock().unwrap();
    for (key, object) in &state.objects {
        if key == CDI || key.ends_with("/cdis.cdi.kubevirt.io") {
            continue;
        }
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (uid, &json!(true)), "{key}");
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/part-of"], "hco", "{key}");
    }
    let hook = &state.objects["admissionregistration.k8s.io/validatingwebhookconfigurations//cdi-api-datavolume-validate"];
    assert!(hook["webhooks"][0]["clientConfig"]["caBundle"].is_string());
}

#[tokio::test]
async fn restarted_operator_writes_nothing_at_rest() {
    let api = installed("1.0.0").await;
    for _ in 0..3 {
        Operator::new(&api, "1.0.0").pass().await.unwrap();
        assert_eq!(api.writes(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn all_objects_are_dumped_if_the_administrator_wants_it() {
    const DUMP: &str = "/configmaps/cdi/cdi-install-strategy";
    let api = installed("1.0.0").await;
    assert_eq!(api.get(DUMP), None);
    let dumping =
        || OperatorEnvironment { dumps_objects: true, ..environment("1.0.0", Objects::All) };
    Operator::in_environment(&api, dumping()).converge().await;
    let dump = api.get(DUMP).unwrap();
    let text = dump["data"]["manifests"].as_str().unwrap();
    assert!(text.contains("\n---\n") && text.contains("name: cdi-apiserver\n"), "{text}");
    assert_eq!(dump["metadata"]["ownerReferences"][0]["kind"], "CDI");
    api.edit(DUMP, |dump| dump["data"] = json!({}));
    let mut restarted = Operator::in_environment(&api, dumping());
    assert_eq!(restarted.converge().await.len(), 1);
    assert_eq!(api.get(DUMP).unwrap()["data"], dump["data"]);
}

#[tokio::test]
async fn second_object_is_rejected_and_leaves_without_effect() {
    let api = installed("1.0.0").await;
    let second = "cdi.kubevirt.io/cdis//second";
    let mut object = cdi();
    object["metadata"]["name"] = "second".into();
    api.put(second, object);
    Operator::new(&api, "1.0.0").converge().await;
    let rejected = api.get(second).unwrap();
    assert_eq!(rejected["status"]["phase"], "Error");
    let degraded = rejected["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(degraded["reason"], "ConfigError");
    assert_eq!(degraded["message"], "Reconciling to error state, unwanted CDI object");
    assert_eq!(status(&api, "phase"), "Deployed");
    api.delete(second);
    assert!(Operator::new(&api, "1.0.0").converge().await.is_empty());
    assert!(api.get(CONTROLLER).is_some());
}

#[tokio::test]
async fn deleted_marker_is_created_again() {
    let api = installed("1.0.0").await;
    let marker = api.get(MARKER).unwrap();
    api.delete(MARKER);
    Operator::new(&api, "1.0.0").converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
    let restored = api.get(MARKER).unwrap();
    for field in ["ownerReferences", "annotations", "labels"] {
        assert_eq!(restored["metadata"][field], marker["metadata"][field]);
    }
}

#[tokio::test]
async fn pods_of_a_deleted_service_account_are_replaced() {
    let api = installed("1.0.0").await;
    let put = |name: &str| {
        let key = format!("/pods/cdi/{name}");
        let labels = json!({ "cdi.kubevirt.io": "cdi-deployment" });
        let spec = json!({ "serviceAccountName": "cdi-sa" });
        api.put(
            &key,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": labels }, "spec": spec }),
        );
        key
    };
    let (kept, broken) = (put("kept"), put("broken"));
    for old in [broken.as_str(), "apps/deployments/cdi/cdi-deployment"] {
        api.edit(old, |old| old["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into());
    }
    Operator::new(&api, "1.0.0").converge().await;
    assert!(api.get(&kept).is_some() && api.get(&broken).is_none());
}

#[tokio::test]
async fn object_with_a_phase_that_was_never_installed_is_rejected() {
    let api = cluster();
    api.edit(CDI, |cdi| cdi["status"] = json!({ "phase": "Deployed" }));
    Operator::new(&api, "1.0.0").converge().await;
    assert_eq!(status(&api, "phase"), "Error");
    let cdi = api.get(CDI).unwrap();
    let message = &cdi["status"]["conditions"][2]["message"];
    assert_eq!(message, "Reconciling to error state, illegal phase");
}

#[tokio::test]
async fn installation_waits_for_the_objects_of_the_previous_one() {
    let api = cluster();
    let orphan = "rbac.authorization.k8s.io/clusterroles//cdi";
    api.put(
        orphan,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "ownerReferences": [{ "uid": "previous", "controller": true }] },
        }),
    );
    let mut operator = Operator::new(&api, "1.0.0");
    operator.pass().await.unwrap();
    assert_eq!(api.writes(), Vec::<String>::new());
    operator.converge().await; // garbage collection deletes it
    assert_eq!(status(&api, "phase"), "Deployed");
}

#[tokio::test]
async fn deployment_that_is_not_ready_degrades_and_recovers() {
    let api = installed("1.0.0").await;
    let mut operator = Operator::new(&api, "1.0.0");
    operator.pass().await.unwrap();
    api.edit(APISERVER, |object| object["status"]["readyReplicas"] = 1.into());
    operator.pass().await.unwrap();
    assert_eq!(
        conditions(&api),
        states([("True", "DeployCompleted"), ("False", ""), ("True", "")])
    );
    assert_eq!(status(&api, "phase"), "Deployed");
    operator.converge().await;
    assert_eq!(conditions(&api)[2].0, "False");
}

#[tokio::test]
async fn rejected_object_is_reported_and_the_others_are_applied() {
    let api = cluster();
    let service = "/services/cdi/cdi-api";
    api.0.lock().unwrap().rejected.insert(service.to_owned());
    let mut operator = Operator::new(&api, "1.0.0");
    for _ in 0..4 {
        operator.pass().await.unwrap_err();
        api.settle();
    }
    assert!(api.get(APISERVER).is_some());
    assert_eq!(status(&api, "phase"), "Deploying");
    let cdi = api.get(CDI).unwrap();
    let degraded = &cdi["status"]["conditions"][2];
    assert_eq!(degraded["reason"], "CreateResourceFailed");
    let message = degraded["message"].as_str().unwrap();
    assert!(message.starts_with("Failed to create resource Service cdi/cdi-api"), "{message}");
    let failures = api.event_reasons();
    let failures = failures.iter().filter(|reason| *reason == "CreateResourceFailed").count();
    assert_eq!(failures, 1, "a failure that repeats is not repeated as an event");
    api.0.lock().unwrap().rejected.clear();
    operator.converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
}

#[tokio::test]
async fn upgrade_is_reported_and_deletes_what_is_not_installed_any_more() {
    let api = installed("1.0.0").await;
    let old = "rbac.authorization.k8s.io/clusterroles//cdi-old";
    let uid = api.get(CDI).unwrap()["metadata"]["uid"].clone();
    let role = |owner: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "labels": { "operator.cdi.kubevirt.io/createVersion": "1.0.0" },
                "ownerReferences": [{ "uid": owner, "controller": true }],
            },
        })
    };
    api.put(old, role(uid));
    // Of another operator, by chance with the label.
    let foreign = "rbac.authorization.k8s.io/clusterroles//foreign";
    let other = api.get(APISERVER).unwrap()["metadata"]["uid"].clone();
    api.put(foreign, role(other));
    let mut operator = Operator::new(&api, "1.1.0");
    operator.pass().await.unwrap();
    assert_eq!(status(&api, "phase"), "Upgrading");
    assert_eq!(status(&api, "targetVersion"), "1.1.0");
    assert_eq!(status(&api, "observedVersion"), "1.0.0");
    assert_eq!(conditions(&api), states([("True", ""), ("True", ""), ("True", "UpgradeStarted")]));
    assert!(api.get(old).is_some(), "the old version still runs");
    operator.converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
    assert_eq!(status(&api, "observedVersion"), "1.1.0");
    assert_eq!(conditions(&api)[2].0, "False");
    assert!(api.get(old).is_none());
    assert!(api.get(foreign).is_some());
    let image =
        api.get(CONTROLLER).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert_eq!(image, "registry/controller_image:1.1.0");
    assert_eq!(
        api.get(CONTROLLER).unwrap()["metadata"]["labels"]["operator.cdi.kubevirt.io/updateVersion"],
        "1.1.0"
    );
}

#[tokio::test]
async fn downgrade_is_refused_and_changes_nothing() {
    let api = installed("1.1.0").await;
    let before = comparable(&api);
    assert!(Operator::new(&api, "1.0.0").converge().await.is_empty());
    assert_eq!(comparable(&api), before);
    assert_eq!(api.event_reasons().last().unwrap(), "ConfigError");
    // The previous patch release of the same minor version is how an administrator goes back.
    let api = installed("1.1.1").await;
    Operator::new(&api, "1.1.0").converge().await;
    assert_eq!(status(&api, "observedVersion"), "1.1.0");
}

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
async fn pvc_webhook_follows_its_setting() {
    let api = installed("1.0.0").await;
    let webhook = "admissionregistration.k8s.io/mutatingwebhookconfigurations//cdi-api-pvc-mutate";
    assert!(api.get(webhook).is_some());
    api.edit(CDI, |cdi| cdi["spec"]["config"] = json!({ "webhookPvcRendering": "Disabled" }));
    Operator::new(&api, "1.0.0").converge().await;
    assert!(api.get(webhook).is_none());
    api.edit(CDI, |cdi| cdi["spec"]["config"] = json!({}));
    Operator::new(&api, "1.0.0").converge().await;
    assert!(api.get(webhook).is_some());
}

#[tokio::test]
async fn edited_config_is_imported_before_it_is_replaced() {
    let api = cluster();
    api.serve("cdi.kubevirt.io/cdiconfigs");
    api.put("cdi.kubevirt.io/cdiconfigs//config", json!({ "spec": { "preallocation": true } }));
    Operator::new(&api, "1.0.0").converge().await;
    let cdi = api.get(CDI).unwrap();
    assert_eq!(cdi["spec"]["config"], json!({ "preallocation": true }));
    assert_eq!(cdi["metadata"]["annotations"]["cdi.kubevirt.io/configAuthority"], "");
}

#[tokio::test]
async fn bad_customization_is_reported_with_the_object() {
    let api = cluster();
    api.edit(CDI, |cdi| {
        cdi["spec"]["customizeComponents"] = json!({ "patches": [{
            "resourceType": "Deployment", "resourceName": "cdi-apiserver", "type": "json",
            "patch": "no JSON",
        }] });
    });
    Operator::new(&api, "1.0.0").converge().await;
    assert_eq!(
        conditions(&api),
        states([("False", ""), ("True", ""), ("True", "CreateResources")])
    );
    let cdi = api.get(CDI).unwrap();
    let message = cdi["status"]["conditions"][2]["message"].as_str().unwrap();
    assert!(message.contains("Deployment cdi-apiserver"), "{message}");
    api.edit(CDI, |cdi| cdi["spec"]["customizeComponents"] = json!({}));
    Operator::new(&api, "1.0.0").converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
}

#[tokio::test]
async fn platform_that_is_served_later_is_enough() {
    let api = installed("1.0.0").await;
    let mut operator = Operator::new(&api, "1.0.0");
    operator.converge().await;
    for platform in [
        "route.openshift.io/routes",
        "security.openshift.io/securitycontextconstraints",
        "monitoring.coreos.com/prometheusrules",
        "monitoring.coreos.com/servicemonitors",
        "populator.storage.k8s.io/volumepopulators",
    ] {
        api.serve(platform);
    }
    operator.converge().await;
    let route = api.get("route.openshift.io/routes/cdi/cdi-uploadproxy").unwrap();
    assert_eq!(route["metadata"]["ownerReferences"][0]["name"], "cdi-deployment");
    let bundle = api.get("/configmaps/cdi/cdi-uploadproxy-signer-bundle").unwrap();
    assert_eq!(route["spec"]["tls"]["destinationCACertificate"], bundle["data"]["ca-bundle.crt"]);
    let state = api.0.lock().unwrap();
    for prefix in [
        "security.openshift.io/securitycontextconstraints//containerized-data-importer",
        "monitoring.coreos.com/prometheusrules/cdi/",
        "monitoring.coreos.com/servicemonitors/cdi/",
        "populator.storage.k8s.io/volumepopulators//",
    ] {
        assert!(state.objects.keys().any(|key| key.starts_with(prefix)), "{prefix}");
    }
}

#[tokio::test]
async fn user_route_receives_the_upload_proxy_ca() {
    let api = installed("1.0.0").await;
    api.serve("route.openshift.io/routes");
    let key = "route.openshift.io/routes/cdi/mine";
    api.put(key, json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": { "annotations": { "operator.cdi.kubevirt.io/injectUploadProxyCert": "true" } },
        "spec": { "host": "uploads.example", "tls": {} },
    }));
    Operator::new(&api, "1.0.0").converge().await;
    let route = api.get(key).unwrap();
    assert!(route["spec"]["tls"]["destinationCACertificate"].is_string());
    assert_eq!(route["spec"]["host"], "uploads.example");
    assert!(api.event_reasons().contains(&"UploadProxyRouteInjectSuccess".to_owned()));
}

#[tokio::test]
async fn stored_versions_are_rewritten_before_they_are_not_served_any_more() {
    let api = installed("1.0.0").await;
    let crd = "apiextensions.k8s.io/customresourcedefinitions//datavolumes.cdi.kubevirt.io";
    api.edit(crd, |crd| {
        let mut old = crd["spec"]["versions"][0].clone();
        old["name"] = "v1alpha1".into();
        old["storage"] = false.into();
        crd["spec"]["versions"].as_array_mut().unwrap().push(old);
        crd["status"]["storedVersions"] = json!(["v1alpha1", "v1beta1"]);
    });
    for name in ["a", "b"] {
        api.put(&format!("cdi.kubevirt.io/datavolumes/vms/{name}"), json!({
            "apiVersion": "cdi.kubevirt.io/v1alpha1", "kind": "DataVolume", "spec": { "kept": 1 },
        }));
    }
    let writes = Operator::new(&api, "1.0.0").converge().await;
    let crd = api.get(crd).unwrap();
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta1"]));
    assert_eq!(crd["spec"]["versions"].as_array().unwrap().len(), 1);
    for name in ["a", "b"] {
        let key = format!("cdi.kubevirt.io/datavolumes/vms/{name}");
        assert_eq!(writes.iter().filter(|write| **write == format!("update {key}")).count(), 1);
        let object = api.get(&key).unwrap();
        assert_eq!(object["apiVersion"], "cdi.kubevirt.io/v1beta1");
        assert_eq!(object["spec"], json!({ "kept": 1 }));
    }
}

fn with_workloads(api: &MemoryApi) {
    for (key, label) in [
        ("/pods/vms/importer-a", "importer"),
        ("/pods/vms/upload-a", "cdi-upload-server"),
        ("/services/other/upload-a", "cdi-upload-server"),
        ("/pods/other/source", "cdi-clone-source"),
        ("/pods/vms/virt-launcher", "no-worker"),
    ] {
        api.put(key, json!({ "metadata": { "labels": { "cdi.kubevirt.io": label } } }));
    }
    api.put("/secrets/cdi/cdi-api-signing-key", json!({ "data": { "id_rsa": "a2V5" } }));
    api.put("/secrets/cdi/foreign", json!({ "data": {} }));
    api.put("coordination.k8s.io/leases/cdi/cdi-controller-leader-election-helper", json!({}));
}

/// What is left when the CDI object is gone.
fn assert_removed(api: &MemoryApi) {
    let state = api.0.lock().unwrap();
    let left: Vec<_> = state.objects.keys().map(String::as_str).collect();
    assert_eq!(
        left,
        [
            "/pods/vms/virt-launcher",
            "/secrets/cdi/foreign",
            // Part of the operator's manifest.
            "apiextensions.k8s.io/customresourcedefinitions//cdis.cdi.kubevirt.io",
        ]
    );
}

#[tokio::test]
async fn removal_deletes_controller_then_workers_then_everything() {
    let api = installed("1.0.0").await;
    with_workloads(&api);
    api.delete(CDI);
    let mut operator = Operator::new(&api, "1.0.0");
    operator.pass().await.unwrap();
    assert_eq!(status(&api, "phase"), "Deleting");
    assert!(api.get("/pods/vms/importer-a").is_some(), "the controller would create it again");
    let writes = operator.converge().await;
    let position = |text: &str| writes.iter().position(|write| write == text).unwrap();
    assert!(position(&format!("delete {CONTROLLER}")) < position("delete /pods/vms/importer-a"));
    assert_removed(&api);
    // The next installation starts from nothing.
    api.put(CDI, cdi());
    Operator::new(&api, "1.0.0").converge().await;
    assert_eq!(status(&api, "phase"), "Deployed");
}

/// Some of the requests about all objects. Every request is too slow for a debug build: CRDs are large.
const STRIDE: usize = 23;
/// Some of the reads. All of them fail the same way: the pass ends, or leaves out one object.
const READ_STRIDE: usize = 4;

/// Runs a scenario once for each of its writes and for some reads, with that request failing, and compares the final states. A
/// response that is lost differs from a refusal for writes only.
async fn fail_each_request(start: &MemoryApi, version: &str, objects: Objects) {
    let reference = start.copied();
    reference.fail_request(usize::MAX, Failure::Refused);
    Operator::of_objects(&reference, version, objects).converge().await;
    let is_write = reference.request_kinds();
    let expected = comparable(&reference);
    let stride = if objects == Objects::All { STRIDE } else { 1 };
    for (index, is_write) in is_write.into_iter().enumerate().step_by(stride) {
        let number = index + 1;
        let failures: &[_] = match (is_write, index % READ_STRIDE) {
            (true, _) => &[Failure::Refused, Failure::ResponseLost],
            (false, 0) => &[Failure::Refused],
            (false, _) => &[],
        };
        for &failure in failures {
            let api = start.copied();
            api.fail_request(number, failure);
            Operator::of_objects(&api, version, objects).converge().await;
            let found = comparable(&api);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "request {number}, {failure:?}");
            }
            assert_eq!(found.len(), expected.len(), "request {number}, {failure:?}");
        }
    }
}

#[tokio::test]
async fn installation_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&cluster(), "1.0.0", objects).await;
    }
}

#[tokio::test]
async fn upgrade_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&installed_objects("1.0.0", objects).await, "1.1.0", objects).await;
    }
}

#[tokio::test]
async fn takeover_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&upstream(objects).await, "0.2.0", objects).await;
    }
}

#[tokio::test]
async fn removal_survives_the_failure_of_each_request() {
    let api = installed("1.0.0").await;
    with_workloads(&api);
    api.delete(CDI);
    fail_each_request(&api, "1.0.0", Objects::Namespaced).await;
    Operator::new(&api, "1.0.0").converge().await;
    assert_removed(&api);
}
