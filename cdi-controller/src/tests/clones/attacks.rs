//! Attacks by users that may clone from a namespace, and have no other permission there.

use api::annotations::{cron, import};
use api::labels;
use k8s_openapi::api::core::v1::Secret;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::*;

/// A DataVolume `disk` in the namespace `vms` with these annotations and labels, and a token for `images/golden`.
fn put_annotated_volume(rights: &Rights, fake: &Fake, annotations: &Value, labels: &Value) {
    rights.clone_of_claim(fake, "images");
    fake.change("datavolumes/vms/disk", |volume| {
        let all = volume["metadata"]["annotations"].as_object_mut().unwrap();
        all.extend(annotations.as_object().unwrap().clone());
        volume["metadata"]["labels"] = labels.clone();
    });
}

fn objects(world: &TestCluster, plural: &str, namespace: &str) -> Vec<Value> {
    let prefix = format!("{plural}/{namespace}/");
    let state = world.fake.0.lock().unwrap();
    let all = state.objects.iter().filter(|(place, _)| place.starts_with(&prefix));
    all.map(|(_, object)| object.clone()).collect()
}

fn mounts(pod: &Value, claim: &str) -> bool {
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == claim)
}

#[tokio::test(start_paused = true)]
async fn pvc_with_the_targets_name_in_the_source_namespace_is_not_mounted() {
    let rights = Rights::new();
    for (strategy, has_driver) in [("csi-clone", true), ("copy", true), ("copy", false)] {
        let fake = cluster(strategy, "images", has_driver);
        // The victim has the name of the attacker's claim.
        fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": "disk", "namespace": "images", "uid": "victim" },
                "spec": { "volumeMode": "Block", "accessModes": ["ReadWriteOnce"] },
                "status": { "phase": "Lost" },
            }),
        );
        let control =
            json!({ request::CLONE_REQUEST: "images/golden", state::CLONE_ON_ONE_NODE: "true" });
        put_annotated_volume(&rights, &fake, &control, &json!({}));
        let mut world = rights.controllers(fake, &[]);
        for _ in 0..20 {
            world.work().await;
            // The user may also write to the PVC itself.
            if !has_driver {
                world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
                    claim["metadata"]["annotations"][state::CLONE_ON_ONE_NODE] = "true".into();
                });
            }
            for pod in objects(&world, "pods", "images") {
                assert!(!mounts(&pod, "disk"), "{strategy} {has_driver}: {pod}");
            }
            let claim = world.fake.get("persistentvolumeclaims", "vms", "disk").unwrap();
            let annotations = &claim["metadata"]["annotations"];
            assert!(
                !has_driver || annotations[request::CLONE_REQUEST].is_null(),
                "{strategy}: {annotations}"
            );
            world.simulate_cluster(DONE);
        }
        assert_eq!(world.status("disk")["phase"], "Succeeded", "{strategy} {has_driver}");
    }
}

/// Annotations that control CDI's own controllers. In the source's namespace they would refer to other objects.
fn control_annotations() -> Value {
    json!({
        import::SOURCE: "http", import::ENDPOINT: "https://evil.example/x",
        import::SECRET_NAME: "keys", "cdi.kubevirt.io/storage.import.secretExtraHeaders.0": "keys",
        import::CERT_CONFIG_MAP: "evil", import::POD_NAME: "other", import::REQUIRES_SCRATCH: "true",
        request::VDDK_INIT_IMAGE: "evil.example/image", request::VDDK_EXTRA_ARGS: "evil",
        request::SERVICE_ACCOUNT: "admin", request::UPLOAD_TARGET: "",
        request::EXTERNAL_POPULATION: "true", request::POPULATED_FOR: "other",
        state::UPLOAD_POD_NAME: "other", state::UPLOAD_CLIENT_NAME: "evil",
        state::CHECKPOINT_CURRENT: "s1", state::PRIME: "other",
        state::PERSISTENT_VOLUME_LIST: "[]", state::OBJECT_TRANSFER_NAME: "evil",
        cron::LAST_USE_TIME: "2000-01-01T00:00:00Z",
    })
}

#[tokio::test(start_paused = true)]
async fn temporary_pvc_gets_no_control_annotations_of_the_target() {
    let rights = Rights::new();
    let labels = json!({
        labels::DATA_IMPORT_CRON: "fedora", labels::DATA_IMPORT_CRON_CLEANUP: "true",
        labels::DATA_IMPORT_CRON_NAMESPACE: "images", labels::COMPONENT: "importer",
        labels::APPLY_STORAGE_PROFILE: "true", "team": "blue",
    });
    for (strategy, has_large_node) in
        [("csi-clone", true), ("snapshot", true), ("copy", true), ("copy", false)]
    {
        let fake = cluster(strategy, "images", true);
        let mut annotations = control_annotations();
        annotations["example.com/storage"] = "fast".into();
        // A DataVolume of another controller would not be cloned to at all.
        for key in [request::EXTERNAL_POPULATION, state::OBJECT_TRANSFER_NAME] {
            annotations.as_object_mut().unwrap().remove(key);
        }
        // The labels of a cron apply as long as it exists: in this namespace, not in the source's.
        fake.put(
            "dataimportcrons",
            json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
                "metadata": { "name": "fedora", "namespace": "vms" },
                "spec": {
                    "schedule": "", "managedDataSource": "fedora",
                    "template": { "spec": { "source": { "registry": { "url": "docker://r/a" } } } },
                },
            }),
        );
        put_annotated_volume(&rights, &fake, &annotations, &labels);
        let mut world = rights.controllers(fake, &[]);
        world.has_large_node = has_large_node;
        let case = format!("{strategy} {has_large_node}");
        let mut helpers = 0;
        for _ in 0..12 {
            world.work().await;
            for claim in objects(&world, "persistentvolumeclaims", "images") {
                if claim["metadata"]["labels"][labels::OWNED_BY_UID].is_null() {
                    continue;
                }
                helpers += 1;
                let (annotations, marks) =
                    (&claim["metadata"]["annotations"], &claim["metadata"]["labels"]);
                for (key, requested) in control_annotations().as_object().unwrap() {
                    // The controllers of a copy set their own values.
                    assert_ne!(&annotations[key], requested, "{case}: {key}");
                }
                for (key, requested) in labels.as_object().unwrap() {
                    let is_free = key == "team";
                    assert_eq!(&marks[key] == requested, is_free, "{case}: {key}");
                }
                assert_eq!(annotations["example.com/storage"], "fast", "{case}");
            }
            for pod in objects(&world, "pods", "images") {
                let component = &pod["metadata"]["labels"][labels::COMPONENT];
                assert_ne!(component, "importer", "{case}");
                assert!(pod["spec"]["serviceAccountName"].is_null(), "{case}: {pod}");
            }
            world.simulate_cluster(DONE);
        }
        let claim = world.fake.get("persistentvolumeclaims", "vms", "disk");
        assert!(helpers > 0, "{case}: {:?} {claim:?}", reasons(&world));
    }
}

#[tokio::test(start_paused = true)]
async fn temporary_pvc_with_control_annotations_gets_no_worker() {
    let rights = Rights::new();
    let fake = cluster("csi-clone", "images", true);
    rights.clone_of_claim(&fake, "images");
    let mut world = rights.controllers(fake, &[]);
    world.driver_clones = false;
    world.work().await;
    let helper = places(&world, "persistentvolumeclaims");
    let helper = helper.iter().find(|place| place.contains("/tmp-pvc-")).unwrap().clone();
    // An earlier version may have created it.
    world.fake.change(&helper, |claim| {
        let all = claim["metadata"]["annotations"].as_object_mut().unwrap();
        all.extend(control_annotations().as_object().unwrap().clone());
        for key in [
            request::EXTERNAL_POPULATION,
            import::POD_NAME,
            state::UPLOAD_POD_NAME,
            state::CHECKPOINT_CURRENT,
        ] {
            all.remove(key);
        }
        claim["status"]["phase"] = "Bound".into();
    });
    world.fake.put("pods", json!({ "metadata": { "name": "other", "namespace": "images" } }));
    for _ in 0..3 {
        world.work().await;
        let pods = objects(&world, "pods", "images");
        assert!(pods.iter().any(|pod| pod["metadata"]["name"] == "other"));
        for pod in pods {
            let component = &pod["metadata"]["labels"][labels::COMPONENT];
            assert!(component.is_null() || component == "cdi-populator-prep", "{pod}");
        }
    }
}

/// The name in the certificate of a Secret.
fn name_in(secret: &Value) -> String {
    let secret: Secret = serde_json::from_value(secret.clone()).unwrap();
    let pem = &secret.data.unwrap()["tls.crt"].0;
    auth::common_name(&CertificateDer::from_pem_slice(pem).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn source_pod_certificate_names_only_its_copy() {
    const PROXY: &str = "client.upload-server.cdi.kubevirt.io";
    let rights = Rights::new();
    let fake = cluster("copy", "images", false);
    rights.clone_of_claim(&fake, "images");
    let mut world = rights.controllers(fake, &[]);
    let mut proved = 0;
    for _ in 0..20 {
        world.work().await;
        for secret in objects(&world, "secrets", "images") {
            assert_eq!(name_in(&secret), "images/golden-vms/disk");
            proved += 1;
        }
        for pod in objects(&world, "pods", "vms") {
            let all = pod["spec"]["containers"][0]["env"].as_array().unwrap();
            let client = all.iter().find(|one| one["name"] == "CLIENT_NAME").unwrap();
            assert_eq!(client["value"], "images/golden-vms/disk");
        }
        if world.fake.get("persistentvolumeclaims", "vms", "disk").is_some() {
            world.fake.change("persistentvolumeclaims/vms/disk", |claim| {
                claim["metadata"]["annotations"][state::UPLOAD_CLIENT_NAME] = PROXY.into();
            });
        }
        world.simulate_cluster(DONE);
    }
    assert!(proved > 0);
}

#[tokio::test(start_paused = true)]
async fn source_pod_uses_a_new_secret_and_no_secret_is_deleted() {
    let rights = Rights::new();
    let fake = cluster("copy", "images", false);
    rights.clone_of_claim(&fake, "images");
    let mut world = rights.controllers(fake, &[]);
    let reader = |world: &TestCluster| {
        let pods = objects(world, "pods", "images");
        let is_reader =
            |pod: &&Value| pod["metadata"]["labels"][labels::COMPONENT] == "cdi-clone-source";
        pods.iter().find(is_reader).cloned()
    };
    let mounted = |pod: &Value| {
        let all = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let key = all.iter().find(|one| one["name"] == "CLIENT_KEY").unwrap();
        key["valueFrom"]["secretKeyRef"]["name"].as_str().unwrap().to_owned()
    };
    let mut first = None;
    for _ in 0..40 {
        world.work().await;
        match (reader(&world), &first) {
            // A user deletes the pod, and the garbage collector is late.
            (Some(pod), None) => {
                let name = pod["metadata"]["name"].as_str().unwrap();
                let secret = world.fake.get("secrets", "images", &mounted(&pod)).unwrap();
                world.fake.delete(&format!("pods/images/{name}"));
                first = Some((mounted(&pod), secret));
                continue;
            }
            (Some(pod), Some((name, secret))) => {
                assert_ne!(mounted(&pod), *name);
                assert_eq!(world.fake.get("secrets", "images", name).as_ref(), Some(secret));
                let own = world.fake.get("secrets", "images", &mounted(&pod)).unwrap();
                assert_eq!(own["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
                let writes = world.fake.0.lock().unwrap().writes.clone();
                assert!(!writes.iter().any(|write| write.starts_with("delete secrets/")));
                return;
            }
            (None, Some(_)) => continue,
            (None, None) => world.simulate_cluster(DONE),
        }
    }
    panic!("there was no second pod");
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_pvc_do_not_delete_foreign_pods_and_secrets() {
    let rights = Rights::new();
    for annotations in [
        json!({ state::UPLOAD_POD_NAME: "other" }),
        json!({ state::UPLOAD_POD_NAME: "other", request::UPLOAD_TARGET: "" }),
        json!({ import::SOURCE: "none", import::POD_NAME: "other" }),
        // The default name may also belong to another user.
        json!({ request::UPLOAD_TARGET: "" }),
    ] {
        let fake = TestCluster::new("Immediate", true).fake;
        fake.put(
            "persistentvolumeclaims",
            json!({
                "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations },
                "spec": { "volumeMode": "Block" }, "status": { "phase": "Bound" },
            }),
        );
        let end = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
        let pod = |name: &str| {
            json!({
                "metadata": { "name": name, "namespace": "vms" },
                "status": { "phase": "Succeeded", "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": end,
                }] },
            })
        };
        let has_target = annotations[request::UPLOAD_TARGET].is_string();
        // Without a pod of that name, the controller creates a server and its Secret.
        if !has_target {
            fake.put("pods", pod("other"));
        }
        for name in ["other", "cdi-upload-disk"] {
            fake.put("secrets", json!({ "metadata": { "name": name, "namespace": "vms" } }));
        }
        let mut world = rights.controllers(fake, &[]);
        for _ in 0..3 {
            world.work().await;
            for name in ["other", "cdi-upload-disk"] {
                let secret = world.fake.get("secrets", "vms", name).unwrap();
                assert!(secret["data"].is_null(), "{annotations}: {name} was replaced");
            }
            assert_eq!(
                world.fake.get("pods", "vms", "other").is_some(),
                !has_target,
                "{annotations}"
            );
        }
        assert_eq!(
            world.fake.get("pods", "vms", "cdi-upload-disk").is_some(),
            has_target,
            "{annotations}"
        );
    }
}

/// Annotations that select networks and service mesh.
fn pod_wishes(whose: &str) -> Value {
    json!({
        request::MULTUS_NETWORKS: format!("{whose}-net"),
        request::MULTUS_DEFAULT_NETWORK: format!("{whose}-default"),
        request::ISTIO_INJECT: format!("{whose}-istio"),
        request::LINKERD_INJECT: format!("{whose}-linkerd"),
    })
}

/// The values of these annotations of an object.
fn wishes_of(object: &Value) -> Value {
    let mut found = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    found.retain(|key, _| pod_wishes("").get(key).is_some());
    Value::Object(found)
}

#[tokio::test(start_paused = true)]
async fn pods_in_the_source_namespace_use_no_networks_of_the_target() {
    let rights = Rights::new();
    let defaults = json!({ request::ISTIO_INJECT: "false", request::LINKERD_INJECT: "disabled" });
    for (strategy, has_driver, has_large_node, is_snapshot) in [
        ("csi-clone", true, true, false),
        ("snapshot", true, true, false),
        ("copy", true, true, false),
        ("copy", true, false, false),
        ("copy", false, true, false),
        ("copy", false, true, true),
        ("snapshot", true, true, true),
    ] {
        for (namespace, source_selects) in [("images", true), ("images", false), ("vms", true)] {
            let case = format!(
                "{strategy} {has_driver} {has_large_node} {is_snapshot} {namespace} {source_selects}"
            );
            let fake = cluster(strategy, namespace, has_driver);
            if source_selects {
                fake.change(&format!("persistentvolumeclaims/{namespace}/golden"), |claim| {
                    claim["metadata"]["annotations"] = pod_wishes("source");
                    claim["metadata"]["annotations"][request::PRIORITY_CLASS] = "source".into();
                });
            }
            let kind = if is_snapshot { OriginKind::Snapshot } else { OriginKind::Claim };
            let mut spec = of_claim(namespace);
            if is_snapshot {
                put_snapshot_in(&fake, namespace);
                let place = json!({ "namespace": namespace, "name": "golden" });
                spec = block(json!({ "snapshot": place }), Some("1Gi"));
            }
            spec["priorityClassName"] = "target".into();
            volume(&fake, spec, Some(rights.token(kind, namespace, "disk")));
            fake.change("datavolumes/vms/disk", |volume| {
                let all = volume["metadata"]["annotations"].as_object_mut().unwrap();
                all.extend(pod_wishes("target").as_object().unwrap().clone());
                all.insert(request::PRIORITY_CLASS.into(), "target".into());
            });
            let mut world = rights.controllers(fake, &[]);
            world.has_large_node = has_large_node;
            world.waits_for_pods = true;
            world.fake.change("storageclasses//fast", |class| {
                class["volumeBindingMode"] = "WaitForFirstConsumer".into();
            });
            world.fake.change("datavolumes/vms/disk", |volume| {
                volume["metadata"]["annotations"][request::BIND_IMMEDIATE] = "".into();
            });
            let is_near = namespace == "vms";
            let of_pods = match (is_near, source_selects && !is_snapshot) {
                (true, _) => pod_wishes("target"),
                (false, true) => pod_wishes("source"),
                (false, false) => defaults.clone(),
            };
            let mut seen = 0;
            for _ in 0..20 {
                world.work().await;
                for pod in objects(&world, "pods", namespace) {
                    seen += 1;
                    assert_eq!(wishes_of(&pod), of_pods, "{case}: {pod}");
                    let class = &pod["spec"]["priorityClassName"];
                    assert_eq!(class == "target", is_near, "{case}: {class}");
                    assert!(is_near || class.is_null(), "{case}: {class}");
                }
                for claim in objects(&world, "persistentvolumeclaims", namespace) {
                    if is_near || claim["metadata"]["labels"][labels::OWNED_BY_UID].is_null() {
                        continue;
                    }
                    let text = claim.to_string();
                    assert!(!text.contains("\"target"), "{case}: {claim}");
                }
                for source in objects(&world, "volumeclonesources", namespace) {
                    let class = &source["spec"]["priorityClassName"];
                    assert_eq!(class == "target", is_near, "{case}: {source}");
                }
                world.simulate_cluster(DONE);
            }
            assert_eq!(world.status("disk")["phase"], "Succeeded", "{case}: {:?}", reasons(&world));
            assert!(seen > 0 || !has_driver || strategy != "copy", "{case}");
        }
    }
}
