//! Every object of ours as a client in Go may write it, with fields that were not given as zero values: the schema takes it,
//! the type of the controllers reads it, and the webhook lets it through.
//!
//! The generator goes by the schema alone, so a new field is covered by itself. A schema that takes no zero value for an
//! optional field has its field listed below, with the type in Go that never writes one.

use api::v1beta1 as kinds;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{data_import_cron, data_volume, object_transfer, populator};
use crate::admission_result::AdmissionResult;
use crate::review::{Operation, Request, ResourceName};

/// Structs in Go without a pointer: written as `{}` where they are empty. All other objects are pointers or maps, and `null`.
const STRUCTS: [&str; 6] =
    ["infra", "workload", "resources", "customizeComponents", "status", "metadata"];

/// Optional strings that have no empty value in the schema of upstream CDI either: clients leave them out (`omitempty`), or
/// their type is a pointer.
const NEVER_EMPTY: [&str; 8] = [
    "CDI.spec.imagePullPolicy",
    "CDI.spec.uninstallStrategy",
    "CDI.spec.cloneStrategyOverride",
    "CDI.spec.config.filesystemOverhead.global",
    "CDI.spec.config.tlsSecurityProfile.type",
    "CDIConfig.spec.filesystemOverhead.global",
    "CDIConfig.spec.tlsSecurityProfile.type",
    "DataImportCron.spec.serviceAccountName",
];

/// The example with a zero value wherever it has nothing.
fn zeroed(path: &str, schema: &Value, given: Value) -> Value {
    match given {
        Value::Object(mut fields) => {
            let none = Map::new();
            let known = schema["properties"].as_object().unwrap_or(&none);
            for (name, schema) in known {
                let path = format!("{path}.{name}");
                let value = match fields.remove(name) {
                    Some(given) => zeroed(&path, schema, given),
                    None => zero(&path, name, schema),
                };
                fields.insert(name.clone(), value);
            }
            Value::Object(fields)
        }
        Value::Array(items) => {
            items.into_iter().map(|item| zeroed(path, &schema["items"], item)).collect()
        }
        given => given,
    }
}

fn zero(path: &str, name: &str, schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") if schema["format"].is_string() || NEVER_EMPTY.contains(&path) => {
            Value::Null
        }
        Some("string") => "".into(),
        // The others are pointers.
        Some("boolean") if name == "finalCheckpoint" => false.into(),
        Some("object") if STRUCTS.contains(&name) => json!({}),
        _ => Value::Null,
    }
}

/// Why the schema refuses a value. The API server drops a null where a field is not nullable.
fn refused(path: &str, schema: &Value, value: &Value) -> Option<String> {
    let complain = |what: &str| Some(format!("{path}: {what}: {value}"));
    match (schema["type"].as_str(), value) {
        (_, Value::Null) => None,
        (Some("object"), Value::Object(fields)) => {
            let required = schema["required"].as_array().into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                if fields.get(name).is_none_or(Value::is_null) {
                    return complain(&format!("{name} is required"));
                }
            }
            fields.iter().find_map(|(name, value)| {
                let below = &schema["properties"][name];
                let below = if below.is_null() { &schema["additionalProperties"] } else { below };
                refused(&format!("{path}.{name}"), below, value)
            })
        }
        (Some("array"), Value::Array(items)) => {
            items.iter().find_map(|item| refused(path, &schema["items"], item))
        }
        (Some("string"), Value::String(text)) => {
            let words = schema["enum"].as_array();
            let is_known = words.is_none_or(|words| words.contains(value));
            let least = schema["minLength"].as_u64().unwrap_or(0) as usize;
            let is_pattern = schema["pattern"].is_string() && text.is_empty();
            (!is_known || text.len() < least || is_pattern).then(|| format!("{path}: {value}"))
        }
        (Some("boolean"), Value::Bool(_)) | (Some("integer"), Value::Number(_)) => None,
        (None, _) => None, // quantities, and what is not looked into
        _ => complain("is of another type"),
    }
}

fn check<K: DeserializeOwned>(
    kind: &str,
    specs: &[Value],
    validate: impl Fn(&Request) -> Option<AdmissionResult>,
) {
    let crd = kinds::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let version = crd.spec.versions.iter().find(|version| version.storage).unwrap();
    let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let schema = serde_json::to_value(schema).unwrap();
    for spec in specs {
        let mut object = json!({
            "apiVersion": format!("{}/v1beta1", crd.spec.group), "kind": kind,
            "metadata": { "name": "disk", "namespace": "vms", "creationTimestamp": null },
            "spec": zeroed(&format!("{kind}.spec"), &schema["properties"]["spec"], spec.clone()),
        });
        if !schema["properties"]["status"].is_null() {
            object["status"] = json!({});
        }
        assert_eq!(refused(kind, &schema, &object), None, "{object}");
        let read = serde_json::from_value::<K>(object.clone());
        assert!(read.is_ok(), "{kind}: {}: {object}", read.err().unwrap());
        let resource = crd.spec.names.plural.clone();
        for operation in [Operation::Create, Operation::Update] {
            let old = json!({ "metadata": { "name": "disk" }, "spec": spec });
            let request = Request {
                operation,
                resource: ResourceName {
                    group: crd.spec.group.clone(),
                    resource: resource.clone(),
                },
                namespace: "vms".into(),
                object: Some(object.clone()),
                old_object: (operation == Operation::Update).then_some(old),
                ..Request::default()
            };
            let result = validate(&request);
            let is_allowed = matches!(result, None | Some(AdmissionResult::Allowed { .. }));
            assert!(is_allowed, "{kind} {operation:?}: {result:?}: {object}");
        }
    }
}

/// Sources that a DataVolume and a VolumeImportSource have.
fn imports() -> Vec<Value> {
    let secret = "secret";
    vec![
        json!({ "http": { "url": "http://host/disk" } }),
        json!({ "s3": { "url": "https://host/bucket/disk" } }),
        json!({ "gcs": { "url": "gs://bucket/disk" } }),
        json!({ "registry": { "url": "docker://host/disk" } }),
        json!({ "registry": { "imageStream": "disk", "pullMethod": "node" } }),
        json!({ "blank": {} }),
        json!({ "imageio": {
            "url": "https://host", "diskId": "1", "secretRef": secret, "certConfigMap": "ca",
        } }),
        json!({ "vddk": {
            "url": "https://host", "uuid": "1", "backingFile": "a", "thumbprint": "b", "secretRef": secret,
        } }),
    ]
}

fn storage() -> Value {
    json!({ "resources": { "requests": { "storage": "1Gi" } } })
}

fn data_volumes() -> Vec<Value> {
    let place = json!({ "namespace": "vms", "name": "golden" });
    let mut sources = imports();
    sources.extend([
        json!({ "upload": {} }),
        json!({ "pvc": place }),
        json!({ "snapshot": place }),
    ]);
    let mut specs = Vec::new();
    for source in sources {
        let mut pvc = storage();
        pvc["accessModes"] = json!(["ReadWriteOnce"]);
        specs.push(json!({ "source": source, "storage": storage() }));
        specs.push(json!({ "source": source, "pvc": pvc }));
    }
    let zero = json!({ "resources": { "requests": { "storage": "0" } } });
    for storage in [storage(), json!({}), zero] {
        let reference = json!({ "kind": "DataSource", "name": "golden" });
        specs.push(json!({ "sourceRef": reference, "storage": storage }));
        specs.push(json!({ "source": { "pvc": place }, "storage": storage }));
    }
    specs
}

#[test]
fn data_volumes_and_their_crons_may_have_zero_values() {
    let facts = data_volume::DataVolumeFacts::default();
    check::<kinds::DataVolume>("DataVolume", &data_volumes(), |request| {
        Some(data_volume::validate(request, &facts))
    });
    let template = |source: Value| json!({ "spec": { "source": source, "storage": storage() } });
    let cron = |source: Value| json!({ "template": template(source), "schedule": "", "managedDataSource": "golden" });
    let crons = [
        cron(json!({ "registry": { "url": "docker://host/disk" } })),
        cron(json!({ "http": { "url": "http://host/disk" } })),
        cron(json!({ "pvc": { "namespace": "vms", "name": "golden" } })),
    ];
    check::<kinds::DataImportCron>("DataImportCron", &crons, |request| {
        Some(data_import_cron::validate(request))
    });
}

#[test]
fn sources_of_claims_may_have_zero_values() {
    let sources: Vec<_> = imports().into_iter().map(|source| json!({ "source": source })).collect();
    check::<kinds::VolumeImportSource>("VolumeImportSource", &sources, |request| {
        Some(populator::validate(request))
    });
    check::<kinds::VolumeUploadSource>("VolumeUploadSource", &[json!({})], |request| {
        Some(populator::validate(request))
    });
    let cloned = json!({ "source": { "kind": "PersistentVolumeClaim", "name": "golden" } });
    check::<kinds::VolumeCloneSource>("VolumeCloneSource", &[cloned], |_| None);
    let disk = json!({ "engineUrl": "https://host", "secretRef": "secret", "diskId": "1" });
    check::<kinds::OvirtVolumePopulator>("OvirtVolumePopulator", &[disk], |_| None);
    let image = json!({ "identityUrl": "https://host", "secretRef": "secret", "imageId": "1" });
    check::<kinds::OpenstackVolumePopulator>("OpenstackVolumePopulator", &[image], |_| None);
}

#[test]
fn all_other_objects_may_have_zero_values() {
    let place = json!({ "namespace": "vms", "name": "golden" });
    let sources = [
        json!({ "source": {} }),
        json!({ "source": { "pvc": place } }),
        json!({ "source": { "dataSource": place } }),
    ];
    check::<kinds::DataSource>("DataSource", &sources, |_| None);
    let sets = json!([{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }]);
    let profiles = [json!({}), json!({ "claimPropertySets": sets })];
    check::<kinds::StorageProfile>("StorageProfile", &profiles, |_| None);
    let source = json!({ "kind": "DataVolume", "namespace": "vms", "name": "disk" });
    let moved = json!({ "source": source, "target": { "namespace": "other" } });
    check::<kinds::ObjectTransfer>("ObjectTransfer", &[moved], |request| {
        Some(object_transfer::validate(request, false))
    });
    check::<kinds::CdiConfig>("CDIConfig", &[json!({})], |_| None);
    check::<kinds::Cdi>("CDI", &[json!({}), json!({ "config": {} })], |_| None);
}
