//! Which rule refuses a DataVolume whose source is missing, and when none does.

use serde_json::{Value, json};

use crate::admission::{outcome, request};
use crate::program::Program;

fn volume(spec: &Value) -> Value {
    let object = json!({ "metadata": { "name": "disk" }, "spec": spec });
    request("datavolumes", "CREATE", object, json!(null))
}

fn storage() -> Value {
    json!({ "resources": { "requests": { "storage": "1Gi" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_spec_is_refused_by_the_validating_webhook() {
    let program = Program::start().await;
    let place = json!({ "namespace": "absent", "name": "absent" });
    let reference = json!({ "kind": "DataSource", "namespace": "absent", "name": "absent" });
    let mut external = storage();
    external["dataSourceRef"] = json!({ "apiGroup": "g", "kind": "K", "name": "n" });
    let both = "422 Data volume should have either Source or SourceRef, or be externally populated";
    let twice = "422 Duplicate storage definition, both target storage and target pvc defined";
    let not_external = "422 External population is incompatible with Source and SourceRef";
    for (spec, expected) in [
        (json!({ "source": { "blank": {} }, "sourceRef": reference, "storage": storage() }), both),
        (json!({ "source": { "pvc": place }, "sourceRef": reference, "storage": storage() }), both),
        (json!({ "source": { "pvc": place }, "storage": storage(), "pvc": storage() }), twice),
        (json!({ "sourceRef": reference, "storage": storage(), "pvc": storage() }), twice),
        (json!({ "sourceRef": reference, "storage": external }), not_external),
        (json!({ "source": { "pvc": place }, "storage": external }), not_external),
        (
            json!({ "source": { "pvc": place, "snapshot": place }, "storage": storage() }),
            "422 Multiple Data volume sources: spec.source.pvc, spec.source.snapshot",
        ),
        (
            json!({ "sourceRef": { "kind": "Pod", "name": "absent" }, "storage": storage() }),
            "422 Unsupported sourceRef kind Pod, currently only DataSource is supported",
        ),
        (json!({ "sourceRef": reference }), "422 Missing Data volume PVC"),
    ] {
        // The mutating webhook allows it without a token, and the validating webhook reports why it is refused.
        let first = program.admit("/datavolume-mutate", volume(&spec)).await;
        assert_eq!((outcome(&first).as_str(), first.get("patch")), ("allowed", None), "{spec}");
        let second = program.admit("/datavolume-validate", volume(&spec)).await;
        assert_eq!(outcome(&second), expected, "{spec}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn populated_pvc_needs_no_source() {
    let program = Program::start().await;
    let specs = [
        json!({ "source": { "pvc": { "namespace": "absent", "name": "a" } }, "storage": {} }),
        json!({ "source": { "snapshot": { "namespace": "absent", "name": "a" } }, "storage": {} }),
        json!({ "sourceRef": { "kind": "DataSource", "name": "absent" }, "storage": {} }),
    ];
    let populated = json!({ "cdi.kubevirt.io/storage.populatedFor": "disk" });
    let other = json!({ "cdi.kubevirt.io/storage.populatedFor": "other" });
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": true,
    }]);
    for (annotations, owners, is_allowed) in [
        (json!({}), json!([]), false),
        (other, json!([]), false),
        (populated.clone(), json!([]), true),
        (populated, owner, false),
    ] {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "annotations": annotations, "ownerReferences": owners }, "spec": {},
        });
        program.cluster.set("/api/v1/namespaces/target/persistentvolumeclaims/disk", claim);
        for spec in &specs {
            let response = program.admit("/datavolume-mutate", volume(spec)).await;
            let case = format!("{annotations} {owners} {spec}");
            assert_eq!(outcome(&response) == "allowed", is_allowed, "{case}: {response}");
            assert_eq!(response.get("patch"), None, "{case}");
        }
    }
}
