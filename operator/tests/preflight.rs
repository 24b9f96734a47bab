//! The check before an installation, upgrade or takeover.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

mod memory_api;

use memory_api::MemoryApi;
use memory_api::scenario::{CDI, Objects, Operator, cluster, environment, installed};
use operator::PreflightReport;
use serde_json::json;

const APISERVER: &str = "apps/deployments/cdi/cdi-apiserver";
const CONTROLLER: &str = "apps/deployments/cdi/cdi-deployment";

async fn check(api: &MemoryApi, version: &str) -> PreflightReport {
    let writes = api.version();
    let report = operator::preflight(api.client(), environment(version, Objects::All)).await;
    assert_eq!(api.version(), writes, "the check writes nothing");
    report.unwrap()
}

#[tokio::test]
async fn check_of_an_empty_cluster_lists_what_is_created() {
    let report = check(&MemoryApi::default(), "1.0.0").await;
    assert_eq!(report.blockers, Vec::<String>::new());
    assert_eq!(report.unchanged, 0);
    for change in ["create Deployment cdi/cdi-apiserver", "create ServiceAccount cdi/cdi-sa"] {
        assert!(report.changes.iter().any(|one| one == change), "{change}");
    }
    let report = check(&cluster(), "1.0.0").await;
    assert_eq!(report.changes[0], "install version 1.0.0 for CDI cdi");
}

#[tokio::test]
async fn check_of_a_current_installation_finds_no_change() {
    let report = check(&installed("1.0.0").await, "1.0.0").await;
    assert_eq!(report.changes, ["keep CDI cdi, version 1.0.0"]);
    assert_eq!(report.blockers, Vec::<String>::new());
    let text = report.text();
    assert!(
        text.ends_with(&format!("{} objects unchanged, 1 changes, 0 blockers\n", report.unchanged))
    );
}

#[tokio::test]
async fn check_names_changed_fields_and_objects_that_are_created_again() {
    let api = installed("1.0.0").await;
    api.edit(CONTROLLER, |object| {
        object["spec"]["selector"]["matchLabels"]["other"] = "".into();
    });
    api.edit(APISERVER, |object| object["spec"]["template"]["spec"]["containers"] = json!([]));
    let report = check(&api, "1.0.0").await;
    let expected = [
        "update Deployment cdi/cdi-apiserver: metadata.labels.operator.cdi.kubevirt.io/updateVersion, \
         spec.template.spec.containers",
        "delete and create Deployment cdi/cdi-deployment: an immutable field differs",
    ];
    for change in expected {
        assert!(report.changes.iter().any(|one| one == change), "{change}: {:?}", report.changes);
    }
    let report = check(&api, "1.1.0").await;
    assert_eq!(report.changes[0], "upgrade CDI cdi from version 1.0.0 to 1.1.0");
}

#[tokio::test]
async fn check_reports_what_the_operator_refuses() {
    let api = installed("1.1.0").await;
    let report = check(&api, "1.0.0").await;
    assert_eq!(
        report.blockers,
        ["CDI cdi: operator downgraded, will not reconcile (installed: 1.1.0, operator: 1.0.0)"]
    );
    api.put(
        "cdi.kubevirt.io/cdis//second",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI", "spec": {},
        }),
    );
    let report = check(&api, "1.1.0").await;
    assert_eq!(report.blockers, ["CDI second: Reconciling to error state, unwanted CDI object"]);
    api.delete(CDI);
    let report = check(&api, "1.1.0").await;
    assert!(
        report.blockers.contains(&"CDI cdi is being deleted".to_owned()),
        "{:?}",
        report.blockers
    );
}

#[tokio::test]
async fn check_reports_customizations_that_cannot_be_applied() {
    let api = cluster();
    api.edit(CDI, |cdi| {
        cdi["spec"]["customizeComponents"] = json!({ "patches": [{
            "resourceType": "Deployment", "resourceName": "cdi-apiserver", "type": "merge",
            "patch": "[",
        }] });
    });
    let report = check(&api, "1.0.0").await;
    assert_eq!(report.blockers.len(), 1);
    assert!(report.blockers[0].contains("Deployment cdi-apiserver"), "{:?}", report.blockers);
    Operator::new(&api, "1.0.0").pass().await.unwrap();
}
