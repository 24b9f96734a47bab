//! A deleted CDI object takes along all that was installed, and the next one starts from nothing.

use serde_json::json;

use crate::memory_api::MemoryApi;
use crate::memory_api::scenario::{CDI, Objects, Operator, cdi, installed};
use crate::{CONTROLLER, fail_each_request, status};

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

#[tokio::test]
async fn removal_survives_the_failure_of_each_request() {
    let api = installed("1.0.0").await;
    with_workloads(&api);
    api.delete(CDI);
    fail_each_request(&api, "1.0.0", Objects::Namespaced).await;
    Operator::new(&api, "1.0.0").converge().await;
    assert_removed(&api);
}
