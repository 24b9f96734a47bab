//! An installation is created, reported and repaired.

use operator::desired::OperatorEnvironment;
use serde_json::json;

use crate::memory_api::scenario::{CDI, Objects, Operator, cdi, cluster, environment, installed};
use crate::{APISERVER, CONTROLLER, MARKER, conditions, fail_each_request, states, status};

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

    // The Deployment stays older than the ServiceAccount, and a pass lists the pods once all the same.
    let lists = || {
        let state = api.0.lock().unwrap();
        let lists = state.requests.iter().filter(|one| one.verb == "list");
        lists.filter(|one| one.resource == "pods").count()
    };
    let before = lists();
    Operator::new(&api, "1.0.0").pass().await.unwrap();
    assert_eq!(lists() - before, 1);
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
    api.serve_platforms();
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
async fn installation_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&cluster(), "1.0.0", objects).await;
    }
}
