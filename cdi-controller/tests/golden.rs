//! What the controllers make of the DataVolumes in `docs/examples`, kept as files: the diff is the review.
//!
//! `CDI_BLESS=1 cargo test -p cdi-controller --test golden` writes them anew.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::path::Path;

use api::v1beta1::{CdiConfig, DataVolume, StorageProfile};
use cdi_controller::claim;
use cdi_controller::config;
use cdi_controller::data_volume::{self, Flow, Operation};
use cdi_controller::meta::Installation;
use cdi_controller::populator::{self, Source, SourceObject};
use cdi_controller::worker::{self, Image};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Deserialize as _;
use serde_json::{Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A cluster where every class that a DataVolume names has block devices, and the default one has file systems.
struct Cluster {
    classes: Vec<StorageClass>,
    profiles: Vec<StorageProfile>,
    config: CdiConfig,
    installation: Installation,
    image: Image,
}

impl Cluster {
    fn for_class(name: Option<&str>) -> Self {
        let set =
            |access: &str, mode: &str| json!([{ "accessModes": [access], "volumeMode": mode }]);
        let mut all = vec![("standard", set("ReadWriteOnce", "Filesystem"))];
        all.extend(name.map(|name| (name, set("ReadWriteMany", "Block"))));
        let class = |(name, _): &(&str, Value)| {
            let mark = (*name == "standard")
                .then(|| json!({ "storageclass.kubernetes.io/is-default-class": "true" }));
            read(
                json!({ "metadata": { "name": name, "annotations": mark }, "provisioner": "csi.example" }),
            )
        };
        let profile = |(name, sets): &(&str, Value)| {
            read(json!({
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "StorageProfile",
                "metadata": { "name": name }, "spec": {}, "status": { "claimPropertySets": sets },
            }))
        };
        let classes: Vec<StorageClass> = all.iter().map(class).collect();
        let mut config: CdiConfig = read(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig", "metadata": { "name": "config" },
            "spec": {
                "featureGates": ["HonorWaitForFirstConsumer"],
                "insecureRegistries": ["private-registry-example-1:5000"],
            },
        }));
        config.status = Some(config::status(
            &config::Facts {
                spec: &config.spec,
                present: &Default::default(),
                classes: &classes,
                entrance: None,
                platform_proxy: None,
            },
            now(),
        ));
        Self {
            profiles: all.iter().map(profile).collect(),
            classes,
            config,
            installation: Installation {
                namespace: "cdi".into(),
                part_of: Some("hyperconverged-cluster".into()),
                version: None,
            },
            image: Image { importer: "cdi-importer".into(), pull_policy: None, verbosity: 1 },
        }
    }
}

fn now() -> Timestamp {
    "2026-11-21T20:00:00Z".parse().unwrap()
}

/// Everything that is made for a DataVolume until its worker begins. Nothing for clones, which have controllers of their
/// own.
fn made_for(mut volume: DataVolume) -> Vec<Value> {
    volume.metadata.uid = Some("11111111-1111-1111-1111-111111111111".into());
    let spec = &volume.spec;
    let class = spec.storage.as_ref().and_then(|storage| storage.storage_class_name.as_deref());
    let class = class.or(spec.pvc.as_ref().and_then(|pvc| pvc.storage_class_name.as_deref()));
    let cluster = Cluster::for_class(class);
    let operation = Operation::of(spec);
    if operation.is_clone() {
        return Vec::new();
    }
    let facts = claim::Facts {
        volume: &volume,
        classes: &cluster.classes,
        profiles: &cluster.profiles,
        volumes: &[],
        config: Some(&cluster.config),
        installation: &cluster.installation,
    };
    let mut made = Vec::new();
    let mut target = claim::object(&facts, &operation, Flow::Populator).unwrap();
    made.push(with_kind("v1", "PersistentVolumeClaim", serde_json::to_value(&target).unwrap()));
    target.metadata.uid = Some("22222222-2222-2222-2222-222222222222".into());

    if let Some(source) = populator::source_object(&volume, &operation) {
        let (object, kind) = match &source {
            SourceObject::Import(object) => {
                (serde_json::to_value(object), Source::Import(&object.spec))
            }
            SourceObject::Upload(object) => {
                (serde_json::to_value(object), Source::Upload(&object.spec))
            }
        };
        made.push(object.unwrap());
        let name = target.spec.as_ref().unwrap().storage_class_name.as_deref();
        let plan = populator::plan(&populator::Facts {
            target: &target,
            source: Some(kind),
            class: cluster.classes.iter().find(|class| class.metadata.name.as_deref() == name),
            prime: None,
            volume: None,
            measured: None,
            config: Some(&cluster.config),
            installation: &cluster.installation,
        });
        match plan.unwrap() {
            populator::Plan::Create { mut prime, .. } => {
                let value = serde_json::to_value(&prime).unwrap();
                made.push(with_kind("v1", "PersistentVolumeClaim", value));
                prime.metadata.uid = Some("33333333-3333-3333-3333-333333333333".into());
                if let Operation::Import(_) = operation {
                    made.push(importer(&cluster, &prime, &target));
                }
            }
            // A verbatim claim without a class waits until the cluster has given it one.
            populator::Plan::Wait => {}
            other => panic!("{other:?}"),
        }
    }
    let config_spec = &cluster.config.spec;
    let status = data_volume::status(
        &data_volume::Facts {
            volume: &volume,
            operation: &operation,
            flow: Flow::Populator,
            claim: Some(&target),
            prime: None,
            class: None,
            config: config_spec,
            origin: None,
            waits_for_static_volume: false,
            measured: None,
            obstacle: None,
        },
        now(),
    );
    made.push(json!({ "status": status.status }));
    made
}

fn importer(
    cluster: &Cluster,
    prime: &PersistentVolumeClaim,
    target: &PersistentVolumeClaim,
) -> Value {
    let pod = worker::pod(&worker::Facts {
        claim: prime,
        target,
        config: Some(&cluster.config),
        classes: &cluster.classes,
        placement: None,
        image: &cluster.image,
        vddk_image: None,
        vddk_node_selector: None,
        installation: &cluster.installation,
        metrics_key: None,
    });
    with_kind("v1", "Pod", serde_json::to_value(pod.unwrap()).unwrap())
}

fn with_kind(api_version: &str, kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object
}

#[test]
fn everything_made_for_the_examples_is_as_it_was_reviewed() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("CDI_BLESS").is_some_and(|value| value == "1");
    let mut seen = Vec::new();
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut made = String::new();
        for document in yaml_serde::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).unwrap();
            if object["kind"] != "DataVolume" {
                continue;
            }
            for value in made_for(read(object)) {
                made.push_str("---\n");
                made.push_str(&yaml_serde::to_string(&value).unwrap());
            }
        }
        if made.is_empty() {
            continue;
        }
        let name = path.file_name().unwrap().to_owned();
        let file = golden.join(&name);
        if bless {
            std::fs::write(&file, &made).unwrap();
        } else if std::fs::read_to_string(&file).ok().as_ref() != Some(&made) {
            wrong.push(name.clone());
        }
        seen.push(name);
    }
    assert!(seen.len() >= 20, "{seen:?}");
    let hint = "run `CDI_BLESS=1 cargo test -p cdi-controller --test golden` and look at the diff";
    assert!(wrong.is_empty(), "{wrong:?} differ: {hint}");
    // Nothing is kept of what is gone.
    for entry in std::fs::read_dir(&golden).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(seen.contains(&name), "{name:?} belongs to no example");
    }
}
