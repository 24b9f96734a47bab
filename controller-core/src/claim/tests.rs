use serde_json::{Value, json};

use super::*;

const GIB: u64 = 1 << 30;

/// The storage classes, profiles and volumes of a cluster.
struct Cluster {
    classes: Vec<StorageClass>,
    profiles: Vec<StorageProfile>,
    volumes: Vec<PersistentVolume>,
    config: Option<CdiConfig>,
}

fn sets(text: &[(&[&str], &str)]) -> Value {
    let set =
        |(access, mode): &(&[&str], &str)| json!({ "accessModes": access, "volumeMode": mode });
    text.iter().map(set).collect()
}

impl Cluster {
    /// `shared` has block devices for several nodes and file systems for one, `files` the latter only, and is the
    /// default; `bare` has no capabilities.
    fn new() -> Self {
        let class = |name: &str, mark: Option<&str>| {
            let annotations = mark.map(|mark| json!({ mark: "true" }));
            json!({ "metadata": { "name": name, "annotations": annotations }, "provisioner": "p" })
        };
        let profile = |name: &str, sets: Value, least: Option<&str>| {
            let annotations = least.map(|size| json!({ request::MINIMUM_CLAIM_SIZE: size }));
            json!({
                "apiVersion": "v", "kind": "StorageProfile",
                "metadata": { "name": name, "annotations": annotations }, "spec": {},
                "status": { "claimPropertySets": sets },
            })
        };
        let read = |value| serde_json::from_value(value).unwrap();
        Self {
            classes: serde_json::from_value(json!([
                class("files", Some(request::DEFAULT_CLASS)),
                class("shared", None),
                class("bare", None),
                class("large", None),
            ]))
            .unwrap(),
            profiles: serde_json::from_value(json!([
                profile("files", sets(&[(&["ReadWriteOnce"], "Filesystem")]), None),
                profile(
                    "shared",
                    sets(&[
                        (&["ReadWriteMany", "ReadWriteOnce"], "Block"),
                        (&["ReadWriteOnce"], "Filesystem")
                    ]),
                    Some("nonsense"),
                ),
                profile("bare", json!([]), None),
                profile("large", sets(&[(&["ReadWriteOnce"], "Block")]), Some("4Gi")),
            ]))
            .unwrap(),
            volumes: Vec::new(),
            config: Some(read(json!({
                "apiVersion": "v", "kind": "CDIConfig", "metadata": { "name": "config" },
                "spec": { "featureGates": ["HonorWaitForFirstConsumer"] },
                "status": { "filesystemOverhead": {
                    "global": "0.055", "storageClass": { "files": "0.055", "shared": "0.1" },
                } },
            }))),
        }
    }

    fn spec(&self, spec: Value) -> Result<PersistentVolumeClaimSpec, String> {
        self.labelled(spec, json!({}))
    }

    fn labelled(&self, spec: Value, labels: Value) -> Result<PersistentVolumeClaimSpec, String> {
        let volume: DataVolume = serde_json::from_value(json!({
            "apiVersion": "v", "kind": "DataVolume", "metadata": { "name": "disk", "labels": labels },
            "spec": spec,
        }))
        .unwrap();
        super::spec(&self.facts(&volume, &Installation::default()))
            .map_err(|error| error.to_string())
    }

    fn facts<'a>(&'a self, volume: &'a DataVolume, installation: &'a Installation) -> Facts<'a> {
        Facts {
            volume,
            classes: &self.classes,
            profiles: &self.profiles,
            volumes: &self.volumes,
            config: self.config.as_ref(),
            installation,
        }
    }
}

fn storage(changes: Value) -> Value {
    let mut storage = json!({ "resources": { "requests": { "storage": "10Gi" } } });
    storage.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    json!({ "source": { "blank": {} }, "storage": storage })
}

/// Class, volume mode, access modes and size, or the error.
fn short(result: Result<PersistentVolumeClaimSpec, String>) -> String {
    match result {
        Err(error) => error,
        Ok(spec) => format!(
            "{} {} {} {}",
            spec.storage_class_name.unwrap_or("-".into()),
            spec.volume_mode.unwrap_or("-".into()),
            spec.access_modes.unwrap_or_default().join("+"),
            spec.resources.unwrap().requests.unwrap()["storage"].0,
        ),
    }
}

#[test]
fn missing_modes_come_from_the_profile() {
    let cluster = Cluster::new();
    for (changes, expected) in [
        (json!({}), "files Filesystem ReadWriteOnce 11327976244"),
        (json!({ "storageClassName": "files" }), "files Filesystem ReadWriteOnce 11327976244"),
        (json!({ "storageClassName": "shared" }), "shared Block ReadWriteMany+ReadWriteOnce 10Gi"),
        (
            json!({ "storageClassName": "shared", "volumeMode": "Filesystem" }),
            "shared Filesystem ReadWriteOnce 11Gi",
        ),
        (
            json!({ "storageClassName": "shared", "accessModes": ["ReadWriteOnce"] }),
            "shared Block ReadWriteOnce 10Gi",
        ),
        (
            json!({ "storageClassName": "shared", "accessModes": ["ReadOnlyMany"] }),
            "shared - ReadOnlyMany 11Gi",
        ),
        (
            json!({ "storageClassName": "files", "accessModes": ["ReadWriteMany"], "volumeMode": "Block" }),
            "files Block ReadWriteMany 10Gi",
        ),
        (
            json!({ "storageClassName": "files", "volumeMode": "Block" }),
            "Spec is missing accessMode and cannot get access mode from StorageProfile files",
        ),
        (
            json!({ "storageClassName": "bare" }),
            "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile bare",
        ),
        (json!({ "storageClassName": "large" }), "large Block ReadWriteOnce 10Gi"),
        (
            json!({ "storageClassName": "gone" }),
            "DataVolume.storage spec is missing accessMode and no storageClass to choose profile",
        ),
        (
            json!({ "storageClassName": "gone", "accessModes": ["ReadWriteOnce"] }),
            "gone - ReadWriteOnce 11327976244",
        ),
    ] {
        assert_eq!(short(cluster.spec(storage(changes.clone()))), expected, "{changes}");
    }
}

#[test]
fn a_disk_prefers_the_default_for_virtual_machines_and_files_do_not() {
    let mut cluster = Cluster::new();
    let mark = Pairs::from([(request::DEFAULT_VIRT_CLASS.into(), "true".into())]);
    cluster.classes[1].metadata.annotations = Some(mark);
    assert_eq!(
        short(cluster.spec(storage(json!({})))),
        "shared Block ReadWriteMany+ReadWriteOnce 10Gi"
    );
    let mut files = storage(json!({}));
    files["contentType"] = json!("archive");
    assert_eq!(short(cluster.spec(files.clone())), "files Filesystem ReadWriteOnce 11327976244");
    files["storage"]["volumeMode"] = json!("Block");
    assert_eq!(short(cluster.spec(files)), "ContentType Archive cannot have block volumeMode");
}

#[test]
fn without_any_class_a_pvc_waits_or_takes_a_volume_created_by_hand() {
    let mut cluster = Cluster::new();
    cluster.classes.clear();
    let waits =
        "DataVolume.storage spec is missing accessMode and no storageClass to choose profile";
    assert_eq!(short(cluster.spec(storage(json!({})))), waits);
    assert!(Error::NoClass.waits_for_storage() && !Error::TooSmall.waits_for_storage());

    let by_hand = |changes: Value| -> PersistentVolume {
        let mut spec = json!({
            "storageClassName": "hand", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "20Gi" },
        });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(json!({ "spec": spec, "status": { "phase": "Available" } })).unwrap()
    };
    let wanted = storage(json!({ "storageClassName": "hand" }));
    for (volumes, expected) in [
        (vec![by_hand(json!({}))], "hand Block ReadWriteOnce 10Gi"),
        (vec![by_hand(json!({ "capacity": { "storage": "5Gi" } }))], waits),
        (vec![by_hand(json!({ "storageClassName": "other" }))], waits),
        (
            vec![
                by_hand(json!({ "capacity": { "storage": "5Gi" } })),
                by_hand(json!({ "accessModes": ["ReadWriteMany"] })),
            ],
            "hand Block ReadWriteMany 10Gi",
        ),
    ] {
        cluster.volumes = volumes;
        assert_eq!(short(cluster.spec(wanted.clone())), expected);
    }
    let classless = storage(json!({ "storageClassName": "" }));
    for class in [json!(null), json!("")] {
        cluster.volumes = vec![by_hand(json!({ "storageClassName": class }))];
        assert_eq!(short(cluster.spec(classless.clone())), " Block ReadWriteOnce 10Gi", "{class}");
        assert_eq!(short(cluster.spec(wanted.clone())), waits, "{class}");
    }
    cluster.volumes = vec![by_hand(json!({}))];
    assert_eq!(short(cluster.spec(classless)), waits);
    cluster.volumes[0].status.as_mut().unwrap().phase = Some("Bound".into());
    assert_eq!(short(cluster.spec(wanted)), waits);
}

#[test]
fn sizes_are_exact_to_the_byte() {
    let cluster = Cluster::new();
    let size = |class: &str, size: Value| {
        let mut spec = storage(json!({ "storageClassName": class }));
        spec["storage"]["resources"] = json!({ "requests": { "storage": size } });
        match cluster.spec(spec) {
            Err(error) => error,
            Ok(spec) => spec.resources.unwrap().requests.unwrap()["storage"].0.clone(),
        }
    };
    for (class, wanted, expected) in [
        ("files", json!("1Gi"), "1200852644"), // 656 + 480 × 2228 / 2186 MiB: what ext4 and XFS need
        ("files", json!("1G"), "1126042071"),  // 656 + 410 × 2228 / 2186 MiB
        ("files", json!(10 * GIB), "11327976244"),
        ("files", json!("1Mi"), "9524566"),
        ("shared", json!("1G"), "1G"),
        ("shared", json!("10240Mi"), "10240Mi"),
        ("shared", json!("1000000001"), "1000000001"),
        ("large", json!("1Gi"), "4Gi"),
        ("large", json!("4Gi"), "4Gi"),
        ("large", json!("5G"), "5G"),
        ("files", json!("1M"), "PVC Spec is not valid - storage size should be at least 1MiB"),
        ("shared", json!(0), "PVC Spec is not valid - storage size should be at least 1MiB"),
        ("files", json!("much"), "PVC Spec is not valid - \"much\" is not a storage size"),
        ("files", json!("-1Gi"), "PVC Spec is not valid - \"-1Gi\" is not a storage size"),
        (
            "files",
            json!("9223372036854775807"),
            "PVC Spec is not valid - the storage size and the file system's overhead pass 2^63",
        ),
    ] {
        assert_eq!(size(class, wanted.clone()), expected, "{class} {wanted}");
    }
}

#[test]
fn only_a_clone_may_leave_its_size_to_its_source() {
    let cluster = Cluster::new();
    let missing = "PVC Spec is not valid - missing storage size";
    let source = json!({ "namespace": "a", "name": "b" });
    for (spec, expected) in [
        (json!({ "source": { "blank": {} }, "storage": {} }), missing),
        (json!({ "source": { "upload": {} }, "storage": { "resources": {} } }), missing),
        (json!({ "source": { "pvc": source }, "storage": {} }), "files Filesystem ReadWriteOnce 0"),
        (
            json!({ "source": { "snapshot": source }, "storage": { "resources": {} } }),
            "files Filesystem ReadWriteOnce 0",
        ),
        (
            json!({ "sourceRef": { "kind": "DataSource", "name": "d" }, "storage": {} }),
            "files Filesystem ReadWriteOnce 0",
        ),
        (
            json!({
                "source": { "pvc": source },
                "storage": { "resources": { "requests": { "storage": "0" } } },
            }),
            "files Filesystem ReadWriteOnce 0",
        ),
    ] {
        assert_eq!(short(cluster.spec(spec.clone())), expected, "{spec}");
    }
}

#[test]
fn spec_pvc_is_copied_unchanged() {
    let pvc = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1" } },
        "volumeName": "v", "storageClassName": "gone", "volumeAttributesClassName": "gold",
    });
    let spec = Cluster::new().spec(json!({ "source": { "blank": {} }, "pvc": pvc })).unwrap();
    assert_eq!(serde_json::to_value(spec).unwrap(), pvc);
}

#[test]
fn fields_for_the_pvc_webhook_are_left_unset() {
    let mut cluster = Cluster::new();
    let label = json!({ labels::APPLY_STORAGE_PROFILE: "true" });
    let wanted = storage(json!({ "storageClassName": "bare" }));
    let spec = cluster.labelled(wanted.clone(), label.clone());
    assert_eq!(short(spec), "bare FromStorageProfile  10Gi");
    let own = storage(json!({ "storageClassName": "bare", "volumeMode": "Block" }));
    assert_eq!(short(cluster.labelled(own, label.clone())), "bare Block  10Gi");
    cluster.config.as_mut().unwrap().spec.webhook_pvc_rendering = Some("Disabled".into());
    assert!(cluster.labelled(wanted, label).is_err());
}

#[test]
fn a_clone_without_a_size_is_not_left_to_the_webhook() {
    let cluster = Cluster::new();
    let label = json!({ labels::APPLY_STORAGE_PROFILE: "true" });
    for source in [
        json!({ "source": { "pvc": { "namespace": "elsewhere", "name": "a" } } }),
        json!({ "source": { "snapshot": { "namespace": "elsewhere", "name": "a" } } }),
        json!({ "sourceRef": { "kind": "DataSource", "namespace": "elsewhere", "name": "a" } }),
    ] {
        for (storage, expected) in [
            (json!({ "storageClassName": "files" }), "files Filesystem ReadWriteOnce "),
            (
                json!({ "storageClassName": "files", "resources": { "requests": { "storage": "0" } } }),
                "files Filesystem ReadWriteOnce 0",
            ),
            (
                json!({ "storageClassName": "files", "resources": { "requests": { "storage": "1Gi" } } }),
                "files FromStorageProfile  1Gi",
            ),
        ] {
            let mut spec = source.clone();
            spec["storage"] = storage;
            let found = short(cluster.labelled(spec.clone(), label.clone()));
            assert!(found.starts_with(expected), "{spec}: {found}");
        }
    }
}

#[test]
fn the_pvc_has_the_annotations_that_its_workers_need() {
    let cluster = Cluster::new();
    let volume: DataVolume = serde_json::from_value(json!({
        "apiVersion": "v", "kind": "DataVolume",
        "metadata": {
            "name": "disk", "namespace": "vms", "uid": "dv-uid",
            "labels": { "team": "a", "app": "mine" },
            "annotations": { "note": "x", request::POPULATED_FOR: "disk", state::POD_RESTARTS: "9" },
        },
        "spec": {
            "source": { "http": { "url": "http://host/disk" } }, "priorityClassName": "high",
            "serviceAccountName": "robot", "preallocation": true,
            "storage": { "resources": { "requests": { "storage": "1Gi" } } },
        },
    }))
    .unwrap();
    let installation = Installation { part_of: Some("platform".into()), ..Installation::default() };
    let facts = cluster.facts(&volume, &installation);
    let operation = Operation::from_spec(&volume.spec);

    let moved = object(&facts, &operation, PopulationMode::Populator).unwrap();
    let get = |key| meta::annotation(&moved.metadata, key);
    for (key, value) in [
        ("note", Some("x")),
        (request::POPULATED_FOR, None),
        (state::POD_RESTARTS, Some("0")),
        (request::CONTENT_TYPE, Some("kubevirt")),
        (request::PRIORITY_CLASS, Some("high")),
        (request::SERVICE_ACCOUNT, Some("robot")),
        (state::PREALLOCATION_REQUESTED, Some("true")),
        (state::CREATED_FOR_DATA_VOLUME, Some("dv-uid")),
        (request::USE_POPULATOR, Some("true")),
        (request::BIND_IMMEDIATE, None),
        (api::annotations::import::ENDPOINT, None),
    ] {
        assert_eq!(get(key), value, "{key}");
    }
    let source = moved.spec.as_ref().unwrap().data_source_ref.as_ref().unwrap();
    assert_eq!(source.name, "volume-import-source-dv-uid");
    let label = |key| meta::label(&moved.metadata, key);
    assert_eq!(label("team"), Some("a"));
    assert_eq!(label(labels::APP), Some(labels::APP_VALUE));
    assert_eq!(label(labels::FILLING_UP_ALERT), Some("disabled"));
    assert_eq!(label(labels::PART_OF), Some("platform"));
    assert_eq!(meta::controller(&moved.metadata).unwrap().kind, "DataVolume");

    let filled = object(&facts, &operation, PopulationMode::Legacy).unwrap();
    let get = |key| meta::annotation(&filled.metadata, key);
    assert_eq!(get(api::annotations::import::ENDPOINT), Some("http://host/disk"));
    assert_eq!(get(request::USE_POPULATOR), Some("false"));
    assert_eq!(filled.spec.as_ref().unwrap().data_source_ref, None);

    let mut closed = Cluster::new();
    closed.config.as_mut().unwrap().spec.feature_gates = None;
    let at_once =
        object(&closed.facts(&volume, &installation), &operation, PopulationMode::Populator)
            .unwrap();
    assert_eq!(meta::annotation(&at_once.metadata, request::BIND_IMMEDIATE), Some(""));
}
