//! What calls of unauthenticated clients may cost: any pod of a cluster can send them.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::TestCluster;
use crate::program::Program;

const CLAIMS: &str = "/api/v1/namespaces/target/persistentvolumeclaims";

fn request(resource: &str, object: Value) -> Value {
    let group = if resource == "persistentvolumeclaims" { "" } else { "cdi.kubevirt.io" };
    json!({
        "uid": "1-2-3",
        "resource": { "group": group, "version": "v1", "resource": resource },
        "namespace": "target",
        "operation": "CREATE",
        "userInfo": { "username": "anna" },
        "object": object,
    })
}

fn claim(class: Option<&str>) -> Value {
    let size = json!({ "requests": { "storage": "1Gi" } });
    request(
        "persistentvolumeclaims",
        json!({
            "metadata": { "name": "disk" },
            "spec": { "volumeMode": "FromStorageProfile", "storageClassName": class, "resources": size },
        }),
    )
}

fn blank() -> Value {
    let storage = json!({ "resources": { "requests": { "storage": "1Gi" } } });
    let spec = json!({ "source": { "blank": {} }, "storage": storage });
    request("datavolumes", json!({ "metadata": { "name": "disk" }, "spec": spec }))
}

fn review(request: &Value) -> String {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
        .to_string()
}

/// A default class with its profile, and a volume that was made by hand for a class that is not there.
fn add_storage(cluster: &TestCluster) {
    cluster.set(
        "/apis/storage.k8s.io/v1/storageclasses/files",
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
            "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        }),
    );
    cluster.set(
        "/apis/cdi.kubevirt.io/v1beta1/storageprofiles/files",
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile", "metadata": {}, "spec": {},
            "status": { "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }] },
        }),
    );
    cluster.set(
        "/api/v1/persistentvolumes/local",
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {},
            "spec": {
                "storageClassName": "by-hand", "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "2Gi" },
            },
            "status": { "phase": "Available" },
        }),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_pvcs_sends_no_requests() {
    let program = Program::start_with_objects(add_storage).await;
    // Once this is answered, all that it needs has been listed.
    program.admit("/pvc-mutate", claim(Some("by-hand"))).await;
    program.cluster.requests();
    for at in 0..100 {
        let class = [None, Some("files"), Some("by-hand"), Some("absent")][at % 4];
        let response = program.admit("/pvc-mutate", claim(class)).await;
        assert_eq!(response["patch"].is_string(), class != Some("absent"), "{class:?}: {response}");
    }
    let mut requests = program.cluster.requests();
    // Those of watches, which begin whatever calls there are.
    requests.retain(|one| !one.contains("watch=true") && !one.contains("fieldSelector"));
    assert_eq!(requests, [""; 0], "100 calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_objects_do_not_stop_pvc_completion() {
    let program = Program::start_with_objects(|cluster| {
        add_storage(cluster);
        add_broken(cluster);
    })
    .await;
    for class in [None, Some("by-hand")] {
        let response = program.admit("/pvc-mutate", claim(class)).await;
        assert!(response["patch"].is_string(), "{class:?}: {response}");
    }
}

/// Objects that the program's types do not read.
fn add_broken(cluster: &TestCluster) {
    for (path, broken) in [
        ("/apis/cdi.kubevirt.io/v1beta1/storageprofiles/broken", json!({ "spec": 7 })),
        ("/apis/storage.k8s.io/v1/storageclasses/broken", json!({ "provisioner": ["p"] })),
        ("/api/v1/persistentvolumes/broken", json!({ "spec": { "capacity": 7 } })),
    ] {
        let mut object = broken;
        object["metadata"] = json!({});
        cluster.set(path, object);
    }
}

/// One pod calls without end. Each call would wait for the cluster for as long as it does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn flood_of_calls_leaves_capacity_for_others() {
    const PER_ADDRESS: usize = 16;
    let program = Program::start().await;
    program.cluster.hold(Some(CLAIMS));
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..4 * PER_ADDRESS {
        let client = program.client(None);
        flood.spawn(async move { client.post("/datavolume-validate", &review(&blank())).await });
    }
    let mut lookups = 0;
    while lookups < PER_ADDRESS {
        tokio::time::sleep(Duration::from_millis(10)).await;
        lookups += lookups_of_claims(&program);
    }
    // The API server, with its certificate; and another address, as which it calls where it has none.
    let source = json!({ "metadata": { "name": "s" }, "spec": { "source": { "blank": {} } } });
    let source = review(&request("volumeuploadsources", source));
    let elsewhere = program.client(None).from([127, 0, 0, 2].into());
    for client in [program.front_proxy(), elsewhere] {
        let response = client.post("/populator-validate", &source).await;
        assert_eq!(response.status, 200, "{}", response.body);
    }
    // Those that wait are refused after a while. The API server calls again after the delay in the response.
    let mut refused = 0;
    while let Some(response) = flood.join_next().await {
        let response = response.unwrap();
        match response.status.as_u16() {
            200 => {}
            429 => {
                assert_eq!(response.headers["retry-after"], "1");
                if refused == 0 {
                    lookups += lookups_of_claims(&program);
                    assert_eq!(lookups, PER_ADDRESS, "lookups in the cluster at once");
                    program.cluster.hold(None);
                }
                refused += 1;
            }
            status => panic!("{status}: {}", response.body),
        }
    }
    assert!(refused > 0, "each of them was judged");
    let response = program.admit("/datavolume-validate", blank()).await;
    assert_eq!(response["allowed"], true, "{response}");
}

/// How often PVCs were looked up since the last time.
fn lookups_of_claims(program: &Program) -> usize {
    let requests = program.cluster.requests();
    requests.iter().filter(|one| one.starts_with(&format!("GET {CLAIMS}"))).count()
}

/// Each value of such a body takes far more memory than text.
#[tokio::test(flavor = "multi_thread")]
async fn body_of_millions_of_values_is_refused() {
    let program = Program::start().await;
    let client = program.client(None);
    let values = format!("[{}{{}}]", r#"{"a":1},"#.repeat((8 << 20) / 8 - 64));
    let body =
        Bytes::from(review(&json!({ "uid": "1", "object": "HERE" })).replace("\"HERE\"", &values));
    assert!(body.len() <= 8 << 20, "{}", body.len());
    for hook in ["/datavolume-validate", "/pvc-mutate"] {
        let response = client.try_call(Method::POST, hook, "application/json", body.clone()).await;
        let response = response.unwrap();
        assert_eq!(response.status, 413, "{hook}: {}", response.body);
    }
    assert!(program.peak_memory() < 256 << 20, "{}", program.peak_memory());
}
