//! Results of the webhooks.

use std::time::SystemTime;

use auth::token::{Claims, ISSUER_API_SERVER, Operation, Resource, VerifyingKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::{CONFIG, KEY, TestCluster};
use crate::program::Program;

pub fn request(resource: &str, operation: &str, object: Value, old_object: Value) -> Value {
    let group = if resource == "persistentvolumeclaims" { "" } else { "cdi.kubevirt.io" };
    json!({
        "uid": "1-2-3",
        "kind": { "group": group, "version": "v1beta1", "kind": "Whatever" },
        "resource": { "group": group, "version": "v1beta1", "resource": resource },
        "name": "disk",
        "namespace": "target",
        "operation": operation,
        "userInfo": { "username": "anna", "groups": ["system:authenticated"] },
        "object": object,
        "oldObject": old_object,
    })
}

fn volume(spec: Value) -> Value {
    json!({ "metadata": { "name": "disk", "creationTimestamp": null }, "spec": spec })
}

fn blank() -> Value {
    json!({ "source": { "blank": {} }, "storage": { "resources": { "requests": { "storage": "1Gi" } } } })
}

/// `allowed`, or the code and the message.
pub fn outcome(response: &Value) -> String {
    if response["allowed"] == true {
        return "allowed".to_owned();
    }
    format!("{}{}", response["status"]["code"], response["status"]["message"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_webhook_reviews_its_objects() {
    let program = Program::start().await;
    let claim = "/api/v1/namespaces/target/persistentvolumeclaims/taken";
    program.cluster.set(
        claim,
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": {} }),
    );
    let named = |name: &str| {
        let mut object = volume(blank());
        object["metadata"]["name"] = name.into();
        object
    };
    let cron = |schedule: &str| {
        json!({ "metadata": { "name": "c" }, "spec": {
            "schedule": schedule, "managedDataSource": "c", "template": { "spec": {
                "source": { "registry": { "url": "docker://a/b" } }, "storage": { "resources": { "requests": { "storage": "1Gi" } } } } } } })
    };
    let transfer = |name: &str| {
        json!({ "metadata": { "name": "t" }, "spec": {
            "source": { "kind": "PersistentVolumeClaim", "namespace": "target", "name": "a" }, "target": { "name": name } } })
    };
    for (path, resource, operation, object, old, expected) in [
        ("/datavolume-validate", "datavolumes", "CREATE", volume(blank()), json!(null), "allowed"),
        (
            "/datavolume-validate",
            "datavolumes",
            "CREATE",
            named("taken"),
            json!(null),
            "422 Destination PVC target/taken already exists",
        ),
        (
            "/datavolume-validate",
            "datavolumes",
            "CREATE",
            volume(json!({})),
            json!(null),
            "422 Missing Data volume PVC",
        ),
        (
            "/datavolume-validate",
            "datavolumes",
            "UPDATE",
            volume(json!({})),
            volume(blank()),
            "422 Cannot update DataVolume Spec",
        ),
        (
            "/datavolume-validate",
            "pods",
            "CREATE",
            volume(blank()),
            json!(null),
            "400expected a DataVolume",
        ),
        (
            "/dataimportcron-validate",
            "dataimportcrons",
            "CREATE",
            cron("0 0 * * *"),
            json!(null),
            "allowed",
        ),
        (
            "/dataimportcron-validate",
            "dataimportcrons",
            "CREATE",
            cron("x"),
            json!(null),
            "422 Illegal cron schedule",
        ),
        (
            "/populator-validate",
            "volumeimportsources",
            "CREATE",
            volume(json!({})),
            json!(null),
            "422 Missing VolumeImport source",
        ),
        (
            "/populator-validate",
            "volumeuploadsources",
            "CREATE",
            volume(json!({})),
            json!(null),
            "allowed",
        ),
        (
            "/objecttransfer-validate",
            "objecttransfers",
            "CREATE",
            transfer("free"),
            json!(null),
            "allowed",
        ),
        (
            "/objecttransfer-validate",
            "objecttransfers",
            "CREATE",
            transfer("taken"),
            json!(null),
            "400ObjectTransfer target already exists",
        ),
    ] {
        let response = program.admit(path, request(resource, operation, object.clone(), old)).await;
        assert_eq!(outcome(&response), expected, "{path} {operation} {object}");
    }
    let response = program
        .admit(
            "/objecttransfer-validate",
            request("objecttransfers", "CREATE", transfer("free"), json!(null)),
        )
        .await;
    assert!(response["warnings"][0].as_str().unwrap().contains("deprecated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cdi_object_with_data_volumes_cannot_be_deleted() {
    let program = Program::start().await;
    let path =
        |name: &str| format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/a/datavolumes/{name}");
    let deletion = |strategy: &str| {
        let object = json!({ "metadata": { "name": "cdi" }, "spec": { "uninstallStrategy": strategy }, "status": { "phase": "Deployed" } });
        request("cdis", "DELETE", json!(null), object)
    };
    let blocking = "BlockUninstallIfWorkloadsExist";
    let of_cron = json!({ "labels": { "cdi.kubevirt.io/dataImportCron": "c" } });
    program.cluster.set(&path("cron"), json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": of_cron }));
    assert_eq!(outcome(&program.admit("/cdi-validate", deletion(blocking)).await), "allowed");
    program.cluster.set(
        &path("disk"),
        json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": "disk", "namespace": "a" } }),
    );
    let refused = outcome(&program.admit("/cdi-validate", deletion(blocking)).await);
    assert!(refused.starts_with("400") && refused.ends_with("Present: a/disk"), "{refused}");
    assert_eq!(
        outcome(&program.admit("/cdi-validate", deletion("RemoveWorkloads")).await),
        "allowed"
    );
}

/// The claims of the token in the response.
pub fn token(cluster: &TestCluster, response: &Value) -> Option<Claims> {
    let patch = STANDARD.decode(response["patch"].as_str()?).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    let value = &patch[0]["value"];
    let token =
        value.as_str().or_else(|| value["cdi.kubevirt.io/storage.clone.token"].as_str()).unwrap();
    let key = cluster.get(KEY).unwrap();
    let key = STANDARD.decode(key["data"]["id_rsa.pub"].as_str().unwrap()).unwrap();
    let key = VerifyingKey::from_pem(&key).unwrap();
    Some(key.verify(token, ISSUER_API_SERVER, SystemTime::now()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn clone_needs_permissions_in_the_source_namespace() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    for namespace in ["source", "forbidden"] {
        cluster.set(
            &format!("/api/v1/namespaces/{namespace}"),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} }),
        );
    }
    let data_source = |namespace: &str, spec: Value| json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource", "metadata": { "namespace": namespace }, "spec": { "source": spec } });
    let path =
        |name: &str| format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/source/datasources/{name}");
    let original = json!({ "pvc": { "namespace": "source", "name": "golden" } });
    cluster.set(&path("direct"), data_source("source", original.clone()));
    cluster.set(
        &path("pointer"),
        data_source("source", json!({ "dataSource": { "namespace": "source", "name": "direct" } })),
    );
    cluster.set(&path("empty"), data_source("source", json!({})));
    cluster.allow("anna create cdi.kubevirt.io/datavolumes/source source/golden");
    cluster.allow("bert create /pods/ source/golden");
    let of = |spec: Value, user: &str, annotations: Value| {
        let object =
            json!({ "metadata": { "name": "disk", "annotations": annotations }, "spec": spec });
        let mut request = request("datavolumes", "CREATE", object, json!(null));
        request["userInfo"]["username"] = user.into();
        request
    };
    let pvc = |namespace: &str, name: &str| json!({ "source": { "pvc": { "namespace": namespace, "name": name } }, "storage": {} });
    let by_reference = |name: &str| json!({ "sourceRef": { "kind": "DataSource", "namespace": "source", "name": name }, "storage": {} });
    let denied = |user: &str, namespace: &str| {
        format!(
            "422 User {user} has insufficient permissions in clone source namespace {namespace}"
        )
    };
    let none = || json!({});
    let known = || json!({ "cdi.kubevirt.io/storage.prePopulated": "disk" });
    for (spec, user, annotations, expected, has_token) in [
        (blank(), "anna", none(), "allowed".to_owned(), false),
        (pvc("target", "own"), "guest", none(), "allowed".to_owned(), true),
        (pvc("source", "golden"), "anna", none(), "allowed".to_owned(), true),
        (pvc("source", "golden"), "bert", none(), "allowed".to_owned(), true),
        (pvc("source", "golden"), "carl", none(), denied("carl", "source"), false),
        (pvc("source", "other"), "anna", none(), denied("anna", "source"), false),
        (pvc("forbidden", "golden"), "anna", none(), denied("anna", "forbidden"), false),
        (
            pvc("absent", "golden"),
            "anna",
            none(),
            "400namespace \"absent\" not found".to_owned(),
            false,
        ),
        (pvc("absent", "golden"), "anna", known(), "allowed".to_owned(), false),
        (pvc("forbidden", "golden"), "anna", known(), "allowed".to_owned(), false),
        (by_reference("direct"), "anna", none(), "allowed".to_owned(), true),
        (by_reference("direct"), "carl", none(), denied("carl", "source"), false),
        (by_reference("pointer"), "anna", none(), "allowed".to_owned(), true),
        (by_reference("pointer"), "carl", none(), denied("carl", "source"), false),
        (by_reference("empty"), "carl", none(), "allowed".to_owned(), false),
        (
            by_reference("absent"),
            "anna",
            none(),
            "400DataSource source/absent not found".to_owned(),
            false,
        ),
    ] {
        let response =
            program.admit("/datavolume-mutate", of(spec.clone(), user, annotations.clone())).await;
        assert_eq!(outcome(&response), expected, "{user} {spec} {annotations}");
        assert_eq!(token(cluster, &response).is_some(), has_token, "{user} {spec} {annotations}");
    }
    let response =
        program.admit("/datavolume-mutate", of(by_reference("pointer"), "anna", none())).await;
    let claims = token(cluster, &response).unwrap();
    assert_eq!((claims.operation, claims.resource), (Operation::Clone, Resource::pvcs()));
    assert_eq!((claims.namespace.as_str(), claims.name.as_str()), ("source", "golden"));
    assert_eq!(
        (claims.params["targetNamespace"].as_str(), claims.params["targetName"].as_str()),
        ("target", "disk")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_a_clone_are_checked_and_get_no_token() {
    let program = Program::start().await;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} });
    program.cluster.set("/api/v1/namespaces/source", namespace);
    program.cluster.allow("anna create cdi.kubevirt.io/datavolumes/source source/golden");
    let spec =
        json!({ "source": { "pvc": { "namespace": "source", "name": "golden" } }, "storage": {} });
    let update =
        |spec: &Value| request("datavolumes", "UPDATE", volume(spec.clone()), volume(spec.clone()));
    let response = program.admit("/datavolume-mutate", update(&spec)).await;
    assert_eq!((outcome(&response).as_str(), response.get("patch")), ("allowed", None));
    let mut by_another = update(&spec);
    by_another["userInfo"]["username"] = "carl".into();
    assert!(
        outcome(&program.admit("/datavolume-mutate", by_another.clone()).await).starts_with("422")
    );
    by_another["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(outcome(&program.admit("/datavolume-mutate", by_another).await), "allowed");
    let gone =
        json!({ "source": { "pvc": { "namespace": "gone", "name": "golden" } }, "storage": {} });
    assert_eq!(outcome(&program.admit("/datavolume-mutate", update(&gone)).await), "allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn pvc_is_completed_unless_rendering_is_disabled() {
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "p" });
    let profile = json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile", "metadata": {}, "spec": {},
        "status": { "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }] } });
    let program = Program::start_with_objects(|cluster| {
        cluster.set("/apis/storage.k8s.io/v1/storageclasses/files", class);
        cluster.set("/apis/cdi.kubevirt.io/v1beta1/storageprofiles/files", profile);
    })
    .await;
    let claim = json!({ "metadata": { "name": "disk" }, "spec": { "volumeMode": "FromStorageProfile", "resources": { "requests": { "storage": "1Gi" } } } });
    let creation = || request("persistentvolumeclaims", "CREATE", claim.clone(), json!(null));
    let response = program.admit("/pvc-mutate", creation()).await;
    let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(
        patch,
        json!([
            { "op": "add", "path": "/spec/volumeMode", "value": "Block" },
            { "op": "add", "path": "/spec/accessModes", "value": ["ReadWriteMany"] },
            { "op": "add", "path": "/spec/storageClassName", "value": "files" },
        ])
    );
    let config = json!({ "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": {}, "spec": { "webhookPvcRendering": "Disabled" } });
    program.cluster.set(CONFIG, config);
    for _ in 0..600 {
        let response = program.admit("/pvc-mutate", creation()).await;
        if response.get("patch").is_none() {
            assert_eq!(response["allowed"], true);
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the setting is not followed");
}
