//! The objects that the controllers create for the DataVolumes in `docs/examples`.

use api::v1beta1::{CdiConfig, DataVolume, StorageProfile};
use controller_core::claim;
use controller_core::config;
use controller_core::data_volume;
use controller_core::meta::Installation;
use controller_core::operation::{Operation, PopulationMode};
use controller_core::populator::{self, Source, SourceObject};
use controller_core::worker::{self, Image};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use crate::{example, read, with_kind};

/// A cluster in which the class that a DataVolume names has block devices, and the default one has file systems.
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
                endpoint: &config::ProxyEndpoint::Closed,
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
            image: Image { importer: "cdi-importer".into(), verbosity: 1, ..Image::default() },
        }
    }
}

fn now() -> Timestamp {
    "2026-11-21T20:00:00Z".parse().unwrap()
}

/// All objects that are created for a DataVolume until its worker starts. None for clones, which have other
/// controllers.
fn objects_of(mut volume: DataVolume) -> Vec<Value> {
    volume.metadata.uid = Some("11111111-1111-1111-1111-111111111111".into());
    let spec = &volume.spec;
    let class = spec.storage.as_ref().and_then(|storage| storage.storage_class_name.as_deref());
    let class = class.or(spec.pvc.as_ref().and_then(|pvc| pvc.storage_class_name.as_deref()));
    let cluster = Cluster::for_class(class);
    let operation = Operation::from_spec(spec);
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
    let mut objects = Vec::new();
    let mut target = claim::object(&facts, &operation, PopulationMode::Populator).unwrap();
    objects.push(with_kind("v1", "PersistentVolumeClaim", serde_json::to_value(&target).unwrap()));
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
        objects.push(object.unwrap());
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
            populator::PopulatorPlan::Create { mut prime, .. } => {
                let value = serde_json::to_value(&prime).unwrap();
                objects.push(with_kind("v1", "PersistentVolumeClaim", value));
                prime.metadata.uid = Some("33333333-3333-3333-3333-333333333333".into());
                if let Operation::Import(_) = operation {
                    objects.push(importer(&cluster, &prime, &target));
                }
            }
            // A verbatim PVC without a class waits until the cluster has set one.
            populator::PopulatorPlan::Wait => {}
            other => panic!("{other:?}"),
        }
    }
    let config_spec = &cluster.config.spec;
    let status = data_volume::status(
        &data_volume::StatusFacts {
            volume: &volume,
            operation: &operation,
            population: PopulationMode::Populator,
            claim: Some(&target),
            prime: None,
            class: None,
            config: config_spec,
            origin: None,
            waits_for_static_volume: false,
            measured: None,
            blocker: None,
        },
        now(),
    );
    objects.push(json!({ "status": status.status }));
    objects
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

#[test]
fn objects_of_the_example_data_volumes_match_the_reviewed_files() {
    let created = |name: &str| {
        let volumes = example(name).into_iter().filter(|object| object["kind"] == "DataVolume");
        volumes.flat_map(|object| objects_of(read(object))).collect()
    };
    let count = crate::compare("data-volumes", created);
    assert!(count >= 20, "{count}");
}
