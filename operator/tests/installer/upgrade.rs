//! An installation is upgraded, and not downgraded.

use serde_json::{Value, json};

use crate::memory_api::scenario::{CDI, Objects, Operator, installed, installed_objects};
use crate::{APISERVER, CONTROLLER, comparable, conditions, fail_each_request, states, status};

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

#[tokio::test]
async fn upgrade_survives_the_failure_of_each_request() {
    for objects in [Objects::Namespaced, Objects::All] {
        fail_each_request(&installed_objects("1.0.0", objects).await, "1.1.0", objects).await;
    }
}
