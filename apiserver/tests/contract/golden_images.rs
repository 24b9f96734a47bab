//! Reuse of golden images, and DataVolumes that programs create for users: no user gets a volume of another namespace
//! by the permissions of a program.

use std::time::SystemTime;

use api::v1beta1::{DataImportCron, DataVolume};
use auth::token::{Claims, ISSUER_API_SERVER, ISSUER_CONTROLLER, LIFETIME, Resource, SigningKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use controller_core::data_import_cron::{self as crons, Change, Facts, NamespaceObjects, PollFrom};
use controller_core::meta::Installation;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::{outcome, request, token};
use crate::cluster::{KEY, TestCluster};
use crate::program::Program;

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const NAME: &str = "fedora-9f86d081884c";
const REUSE: &str = "cdi.kubevirt.io/storage.import.reuseGoldenImage";
const PROOF: &str = "cdi.kubevirt.io/storage.import.goldenImageProof";
const CONTROLLER: &str = "system:serviceaccount:cdi:cdi-sa";
const KUBEVIRT: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

fn claim(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
}

fn snapshot(namespace: &str, name: &str) -> String {
    format!("/apis/snapshot.storage.k8s.io/v1/namespaces/{namespace}/volumesnapshots/{name}")
}

fn cdi(namespace: &str, plural: &str, name: &str) -> String {
    format!("/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/{plural}/{name}")
}

fn storage() -> Value {
    json!({ "resources": { "requests": { "storage": "10Gi" } } })
}

fn pinned() -> String {
    format!("docker://r/fedora@{DIGEST}")
}

/// The metadata of a PVC or VolumeSnapshot `NAME` in `target`.
fn metadata(uid: &str, proof: Option<&str>) -> Value {
    let annotations = proof.map(|proof| json!({ PROOF: proof }));
    json!({ "namespace": "target", "name": NAME, "uid": uid, "annotations": annotations })
}

/// A cron `fedora` in `target` that has imported the image, and its DataSource, which refers to this.
fn set_cron(cluster: &TestCluster, source: Value) {
    cluster.set(
        &cdi("target", "dataimportcrons", "fedora"),
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
            "metadata": { "namespace": "target", "uid": "cron-uid" },
            "spec": { "schedule": "", "managedDataSource": "fedora", "template": { "spec": {
                "source": { "registry": { "url": "docker://r/fedora:latest" } }, "storage": storage(),
            } } },
            "status": {
                "currentImports": [{ "DataVolumeName": NAME, "Digest": DIGEST }],
                "lastImportedPVC": { "namespace": "target", "name": NAME },
            },
        }),
    );
    cluster.set(
        &cdi("target", "datasources", "fedora"),
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "namespace": "target" }, "spec": { "source": source },
        }),
    );
}

fn signing_key(cluster: &TestCluster) -> SigningKey {
    let secret = cluster.get(KEY).unwrap();
    let key = STANDARD.decode(secret["data"]["id_rsa"].as_str().unwrap()).unwrap();
    SigningKey::from_pem(&key).unwrap()
}

/// A proof as the controller signs it.
fn proof(
    cluster: &TestCluster,
    resource: Resource,
    uid: &str,
    cron_uid: &str,
    digest: &str,
) -> String {
    let stated = Claims::golden_image(resource, ("target", NAME, uid), cron_uid, digest);
    signing_key(cluster).sign(&stated, ISSUER_CONTROLLER, LIFETIME, SystemTime::now()).unwrap()
}

fn wants(policy: &str, url: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "disk", "annotations": { REUSE: policy } },
        "spec": { "source": { "registry": { "url": url } }, "storage": storage() },
    })
}

fn creation(object: Value, namespace: &str, user: &str) -> Value {
    let mut request = request("datavolumes", "CREATE", object, json!(null));
    request["namespace"] = namespace.into();
    request["userInfo"]["username"] = user.into();
    request
}

fn patch(response: &Value) -> Value {
    let patch = response["patch"].as_str().map(|text| STANDARD.decode(text).unwrap());
    patch.map_or(json!([]), |patch| serde_json::from_slice(&patch).unwrap())
}

/// What a new DataVolume becomes a clone of.
async fn cloned(program: &Program, request: Value) -> Option<Value> {
    let response = program.admit("/datavolume-mutate", request).await;
    assert_eq!(outcome(&response), "allowed");
    let patch = patch(&response);
    let source = patch.as_array().unwrap().iter().find(|one| one["path"] == "/spec/source");
    assert_eq!(token(&program.cluster, &response).is_some(), source.is_some(), "{patch}");
    source.map(|source| source["value"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_golden_image_is_cloned_on_request() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    let place = json!({ "namespace": "target", "name": NAME });
    for (kind, resource, path) in [
        ("pvc", Resource::pvcs(), claim("target", NAME)),
        ("snapshot", Resource::snapshots(), snapshot("target", NAME)),
    ] {
        set_cron(cluster, json!({ kind: place }));
        let proof = proof(cluster, resource, "golden-uid", "cron-uid", DIGEST);
        cluster.set(&path, json!({ "metadata": metadata("golden-uid", Some(&proof)) }));
        for (policy, url, is_cloned) in [
            ("true", pinned().as_str(), true),
            ("false", &pinned(), false),
            ("true", "docker://r/other", false),
        ] {
            let request = creation(wants(policy, url), "target", "anna");
            let found = cloned(&program, request).await;
            assert_eq!(found, is_cloned.then(|| json!({ kind: place })), "{kind} {policy} {url}");
        }
    }
    assert_eq!(cluster.reviews(), [""; 0], "within a namespace no permission is reviewed");
}

/// Tenants decide how many DataImportCrons their namespace has and how large they are, and any pod may call the webhook.
#[tokio::test(flavor = "multi_thread")]
async fn golden_images_are_searched_a_page_at_a_time() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    let place = json!({ "namespace": "target", "name": NAME });
    set_cron(cluster, json!({ "pvc": place }));
    let proof = proof(cluster, Resource::pvcs(), "golden-uid", "cron-uid", DIGEST);
    let image = json!({ "metadata": metadata("golden-uid", Some(&proof)) });
    cluster.set(&claim("target", NAME), image);
    let add = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let mut cron = hostile_cron("", "none", json!({}), json!({}), json!({}));
            cron["metadata"]["namespace"] = "target".into();
            cluster.set(&cdi("target", "dataimportcrons", &format!("c{number:03}")), cron);
        }
    };
    let ask = async || {
        cluster.requests();
        let request = creation(wants("true", &pinned()), "target", "anna");
        let source = cloned(&program, request).await;
        let lists = cluster.requests().into_iter().filter(|one| one.contains("dataimportcrons"));
        (source, lists.collect::<Vec<_>>())
    };
    // The one that has the image is the last: `fedora`.
    add(0..25);
    let (source, lists) = ask().await;
    assert_eq!(source, Some(json!({ "pvc": place })));
    assert_eq!(lists.len(), 3, "{lists:?}");
    assert!(lists.iter().all(|list| list.contains("limit=10")), "{lists:?}");
    add(25..700);
    let (source, lists) = ask().await;
    assert_eq!((source, lists.len()), (None, 50), "{lists:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn image_without_the_controllers_proof_is_imported() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    let good = |uid: &str| proof(cluster, Resource::pvcs(), uid, "cron-uid", DIGEST);
    let key = signing_key(cluster);
    let stated =
        Claims::golden_image(Resource::pvcs(), ("target", NAME, "golden-uid"), "cron-uid", DIGEST);
    let of_webhook = key.sign(&stated, ISSUER_API_SERVER, LIFETIME, SystemTime::now()).unwrap();
    let elsewhere = Claims { namespace: "other".into(), ..stated.clone() };
    let elsewhere = key.sign(&elsewhere, ISSUER_CONTROLLER, LIFETIME, SystemTime::now()).unwrap();
    for (case, note) in [
        ("none, as of an older controller", None),
        ("not signed", Some("true".to_owned())),
        ("of another PVC of the same name", Some(good("earlier-uid"))),
        ("of another cron", Some(proof(cluster, Resource::pvcs(), "golden-uid", "other", DIGEST))),
        (
            "of another digest",
            Some(proof(cluster, Resource::pvcs(), "golden-uid", "cron-uid", "sha256:00")),
        ),
        (
            "of a snapshot",
            Some(proof(cluster, Resource::snapshots(), "golden-uid", "cron-uid", DIGEST)),
        ),
        ("of another namespace", Some(elsewhere)),
        ("signed for users", Some(of_webhook)),
    ] {
        set_cron(cluster, json!({ "pvc": { "namespace": "target", "name": NAME } }));
        let object = json!({ "metadata": metadata("golden-uid", note.as_deref()) });
        cluster.set(&claim("target", NAME), object);
        let request = creation(wants("true", &pinned()), "target", "anna");
        assert_eq!(cloned(&program, request).await, None, "{case}");
    }
    let mut going = json!({ "metadata": metadata("golden-uid", Some(&good("golden-uid"))) });
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    cluster.set(&claim("target", NAME), going);
    let request = creation(wants("true", &pinned()), "target", "anna");
    assert_eq!(cloned(&program, request).await, None, "one that is being deleted");
}

/// A cron in the namespace of the attacker.
fn hostile_cron(
    name: &str,
    managed: &str,
    annotations: Value,
    template: Value,
    status: Value,
) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": {
            "name": name, "namespace": "x", "uid": format!("{name}-uid"), "annotations": annotations,
        },
        "spec": {
            "schedule": "", "managedDataSource": managed,
            "template": { "metadata": template, "spec": {
                "source": { "registry": { "url": "docker://r/fedora:latest" } }, "storage": storage(),
            } },
        },
        "status": status,
    })
}

/// The DataVolume that the controller creates for a cron.
fn imported_by_controller(cron: &Value) -> DataVolume {
    let cron: DataImportCron = serde_json::from_value(cron.clone()).unwrap();
    let installation = Installation { namespace: "cdi".into(), ..Installation::default() };
    let facts = Facts {
        cron: &cron,
        manager: None,
        classes: &[],
        profiles: &[],
        snapshot_classes: &[],
        all: NamespaceObjects { volumes: &[], claims: &[], snapshots: &[], sources: &[] },
        poll_from: PollFrom::Controller,
        polled: None,
        may_clone: false,
        installation: &installation,
    };
    let plan = crons::plan(&facts, Timestamp::UNIX_EPOCH);
    let created = plan.changes.into_iter().find_map(|change| match change {
        Change::CreateVolume(volume) => Some(*volume),
        _ => None,
    });
    created.unwrap()
}

/// Issue 19, point 1, step by step: in namespace x a cron `b` that is not reconciled and whose status names `y/secret-disk`,
/// a DataSource that names the same, and a cron `a` whose template requests reuse of the same image.
#[tokio::test(flavor = "multi_thread")]
async fn forged_golden_images_do_not_reach_another_namespace() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    for namespace in ["x", "y"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        cluster.set(&path, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} }));
    }
    // Programs may clone from everywhere, as ClusterRoles let them.
    for user in [CONTROLLER, KUBEVIRT] {
        cluster.allow(&format!("{user} create cdi.kubevirt.io/datavolumes/source y/secret-disk"));
    }
    for kind in ["pvc", "snapshot"] {
        // The victim; even one that has a proof of its own, made for its own namespace.
        let resource = if kind == "pvc" { Resource::pvcs() } else { Resource::snapshots() };
        let of_victim =
            Claims::golden_image(resource, ("y", "secret-disk", "victim-uid"), "b-uid", DIGEST);
        let proof = signing_key(cluster)
            .sign(&of_victim, ISSUER_CONTROLLER, LIFETIME, SystemTime::now())
            .unwrap();
        let path =
            if kind == "pvc" { claim("y", "secret-disk") } else { snapshot("y", "secret-disk") };
        let victim = json!({ "metadata": {
            "namespace": "y", "uid": "victim-uid", "annotations": { PROOF: proof },
        } });
        cluster.set(&path, victim);
        // 1 and 2: the cron `b`, terminating with a finalizer, with a status that the tenant wrote.
        let secret = json!({ "namespace": "y", "name": "secret-disk" });
        let status = json!({
            "currentImports": [{ "DataVolumeName": "secret-disk", "Digest": DIGEST }],
            "lastImportedPVC": secret,
        });
        let mut b = hostile_cron("b", "d", json!({}), json!({}), status);
        b["metadata"]["finalizers"] = json!(["example.com/mine"]);
        b["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        cluster.set(&cdi("x", "dataimportcrons", "b"), b);
        // 3: the DataSource.
        cluster.set(
            &cdi("x", "datasources", "d"),
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
                "metadata": { "namespace": "x" }, "spec": { "source": { kind: secret } },
            }),
        );
        // 4: the cron `a`, pinned to the same digest.
        let a = hostile_cron(
            "a",
            "e",
            json!({ "cdi.kubevirt.io/storage.import.pinnedDigest": DIGEST }),
            json!({ "annotations": { REUSE: "true", "example.com/kept": "yes" } }),
            json!({}),
        );
        cluster.set(&cdi("x", "dataimportcrons", "a"), a.clone());
        // 5: the controller creates the DataVolume of `a`.
        let created = imported_by_controller(&a);
        let annotations = created.metadata.annotations.clone().unwrap();
        assert!(!annotations.contains_key(REUSE), "{annotations:?}");
        assert_eq!(annotations["example.com/kept"], "yes");
        let created = serde_json::to_value(created).unwrap();
        assert_eq!(created["spec"]["source"]["registry"]["url"], pinned());
        // Were it to carry the annotation all the same, as one of a VirtualMachine's dataVolumeTemplates does.
        let mut asking = created.clone();
        asking["metadata"]["annotations"][REUSE] = "true".into();
        for (object, user) in [
            (&created, CONTROLLER),
            (&asking, CONTROLLER),
            (&asking, KUBEVIRT),
            (&asking, "system:serviceaccount:x:default"),
        ] {
            let request = creation(object.clone(), "x", user);
            let response = program.admit("/datavolume-mutate", request).await;
            assert_eq!(outcome(&response), "allowed", "{kind} {user}");
            assert_eq!(patch(&response), json!([]), "{kind} {user}: it is imported as requested");
        }
        assert_eq!(cluster.reviews(), [""; 0], "no permission in y is reviewed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn installations_programs_do_not_lend_their_permissions() {
    let program = Program::start().await;
    let cluster = &program.cluster;
    for namespace in ["x", "y"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        cluster.set(&path, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": {} }));
    }
    let account = |name: &str| format!("system:serviceaccount:cdi:{name}");
    let right = |user: &str| format!("{user} create cdi.kubevirt.io/datavolumes/source y/disk");
    let programs = ["cdi-sa", "cdi-operator", "cdi-apiserver", "cdi-cronjob", "cdi-uploadproxy"];
    for name in programs {
        cluster.allow(&right(&account(name)));
    }
    let mut cron = hostile_cron("fedora", "f", json!({}), json!({}), json!({}));
    cron["spec"]["serviceAccountName"] = "robot".into();
    cluster.set(&cdi("x", "dataimportcrons", "fedora"), cron);
    let clone = |label: Option<&str>, annotations: Value| {
        let labels = label.map(|name| json!({ "cdi.kubevirt.io/dataImportCron": name }));
        json!({
            "metadata": { "name": "disk", "labels": labels, "annotations": annotations },
            "spec": { "source": { "pvc": { "namespace": "y", "name": "disk" } }, "storage": storage() },
        })
    };
    let denied = |account: &str| {
        format!(
            "422 User system:serviceaccount:x:{account} has insufficient permissions in clone source namespace y"
        )
    };
    let admit = async |object: Value, user: &str| {
        let request = creation(object, "x", user);
        let response = program.admit("/datavolume-mutate", request).await;
        (outcome(&response), token(cluster, &response).is_some())
    };
    // The cron's account, or `default` without a cron.
    for name in programs {
        for (label, reviewed) in
            [(None, "default"), (Some("fedora"), "robot"), (Some("gone"), "default")]
        {
            let found = admit(clone(label, json!({})), &account(name)).await;
            assert_eq!(found, (denied(reviewed), false), "{name} {label:?}");
        }
    }
    assert!(cluster.reviews().iter().all(|review| review.starts_with("system:serviceaccount:x:")));
    // An update of an existing DataVolume is no clone, and gets no token.
    let old = clone(None, json!({}));
    let mut new = clone(Some("fedora"), json!({ "cdi.kubevirt.io/storage.clone.token": "forged" }));
    new["metadata"]["finalizers"] = json!(["cdi.kubevirt.io/dataVolumeFinalizer"]);
    for name in programs {
        let mut update = request("datavolumes", "UPDATE", new.clone(), old.clone());
        update["namespace"] = "x".into();
        update["userInfo"]["username"] = account(name).into();
        let response = program.admit("/datavolume-mutate", update).await;
        assert_eq!(outcome(&response), "allowed", "{name}");
        assert_eq!(patch(&response)[0]["op"], "remove", "{name}");
    }
    assert_eq!(cluster.reviews(), [""; 0]);
    // An ObjectTransfer creates the DataVolume again, which is full: it goes through, and is granted nothing.
    let transferred = clone(None, json!({ "cdi.kubevirt.io/storage.prePopulated": "disk" }));
    assert_eq!(admit(transferred.clone(), &account("cdi-sa")).await, ("allowed".into(), false));
    // With a permission of the namespace's own account all is granted as for a user.
    cluster.allow(&right("system:serviceaccount:x:robot"));
    let of_cron = clone(Some("fedora"), json!({}));
    assert_eq!(admit(of_cron.clone(), &account("cdi-sa")).await, ("allowed".into(), true));
    assert_eq!(admit(transferred, &account("cdi-sa")).await, ("allowed".into(), false));
    // Everybody else is reviewed by their own name, also who has only the name of an account.
    cluster.allow(&right(KUBEVIRT));
    assert_eq!(admit(of_cron.clone(), KUBEVIRT).await, ("allowed".into(), true));
    let stranger = "system:serviceaccount:other:cdi-sa";
    let (outcome, has_token) = admit(of_cron, stranger).await;
    assert!(outcome.starts_with(&format!("422 User {stranger} has insufficient")), "{outcome}");
    assert!(!has_token);
}

/// A PVC that a user creates in their own namespace, to learn how large a volume of another one is.
#[tokio::test(flavor = "multi_thread")]
async fn size_of_a_volume_in_another_namespace_is_not_revealed() {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
        "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
    });
    let profile = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile", "metadata": {}, "spec": {},
        "status": { "claimPropertySets": [{ "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }] },
    });
    let program = Program::start_with_objects(|cluster| {
        cluster.set("/apis/storage.k8s.io/v1/storageclasses/files", class);
        cluster.set("/apis/cdi.kubevirt.io/v1beta1/storageprofiles/files", profile);
    })
    .await;
    let cluster = &program.cluster;
    for namespace in ["target", "victim"] {
        cluster.set(
            &cdi(namespace, "volumeclonesources", "source"),
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
                "metadata": { "namespace": namespace },
                "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "secret" } },
            }),
        );
        let size = json!({ "storage": "7777Mi" });
        cluster.set(
            &claim(namespace, "secret"),
            json!({
                "metadata": { "namespace": namespace },
                "spec": { "storageClassName": "files", "volumeMode": "Block", "resources": { "requests": size } },
                "status": { "capacity": size },
            }),
        );
    }
    let named = |namespace: Option<&str>, name: &str| {
        let annotations =
            namespace.map(|namespace| json!({ "cdi.kubevirt.io/dataSourceNamespace": namespace }));
        let object = json!({
            "metadata": { "name": "disk", "annotations": annotations },
            "spec": { "dataSourceRef": {
                "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": name,
            } },
        });
        request("persistentvolumeclaims", "CREATE", object, json!(null))
    };
    for own in [None, Some("target")] {
        let response = program.admit("/pvc-mutate", named(own, "source")).await;
        assert!(patch(&response).to_string().contains("7777Mi"), "{own:?}: {response}");
    }
    let nothing = program.admit("/pvc-mutate", named(None, "absent")).await;
    assert_eq!(nothing["allowed"], false);
    for name in ["source", "absent"] {
        let mut request = named(Some("victim"), name);
        request["userInfo"]["username"] = CONTROLLER.into();
        let response = program.admit("/pvc-mutate", request).await;
        assert_eq!(outcome(&response), outcome(&nothing), "{name}");
    }
}
