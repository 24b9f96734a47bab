//! The CRDs: the files in `deploy/crds` match the types, and no documented field is missing.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

use std::collections::BTreeMap;
use std::path::Path;

use api::v1beta1 as kinds;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn crd_files_match_the_types() {
    let folder = Path::new(ROOT).join("deploy/crds");
    let mut expected = BTreeMap::new();
    for (name, text) in kinds::manifests() {
        expected.insert(name, text);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        // Not `assert_eq!`: its message would hold two files of a thousand lines.
        let same = expected.get(&name) == Some(&text);
        assert!(same, "deploy/crds/{name} is out of date: run `cargo xtask manifests`");
        found.push(name);
    }
    found.sort();
    assert_eq!(found, expected.into_keys().collect::<Vec<_>>());
}

/// The CRDs by kind.
fn crds() -> BTreeMap<String, Value> {
    let by_kind = |crd| {
        let crd = serde_json::to_value(crd).unwrap();
        (crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(), crd)
    };
    kinds::crds().into_iter().map(by_kind).collect()
}

fn schemas(crd: &Value) -> impl Iterator<Item = &Value> {
    crd["spec"]["versions"].as_array().unwrap().iter().map(|v| &v["schema"]["openAPIV3Schema"])
}

#[test]
fn documented_fields_have_their_types() {
    let crds = crds();
    let mut kind = "";
    let mut checked = 0;
    for line in include_str!("fields.txt").lines() {
        let columns: Vec<_> = line.split_whitespace().collect();
        match columns.as_slice() {
            [] | ["#", ..] => {}
            [name, group] if name.starts_with(char::is_uppercase) => {
                kind = name;
                assert_eq!(crds[kind]["spec"]["group"], *group, "{kind}");
            }
            [path, expected] => {
                for schema in schemas(&crds[kind]) {
                    let required = path.ends_with('*');
                    let (found, is_required) = field(schema, path.trim_end_matches('*'));
                    let found = found.unwrap_or_else(|| panic!("{kind} has no {path}"));
                    assert_eq!(type_of(found), *expected, "{kind} {path}");
                    assert_eq!(is_required, required, "{kind} {path}: required");
                    checked += 1;
                }
            }
            _ => panic!("{line}"),
        }
    }
    assert!(checked > 300, "{checked}");
}

/// The schema at a path, through lists, and whether the object around it requires it.
fn field<'a>(schema: &'a Value, path: &str) -> (Option<&'a Value>, bool) {
    let mut at = schema;
    let mut required = false;
    for name in path.split('.') {
        let object = if at["items"].is_object() { &at["items"] } else { at };
        required = object["required"].as_array().is_some_and(|all| all.contains(&name.into()));
        match object["properties"].get(name) {
            Some(next) => at = next,
            None => return (None, false),
        }
    }
    (Some(at), required)
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return "any".into();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "quantity".into();
    }
    if let Some(values) = schema["enum"].as_array() {
        // The empty string means no value.
        let values = values.iter().filter_map(Value::as_str).filter(|value| !value.is_empty());
        return values.collect::<Vec<_>>().join("|");
    }
    match schema["type"].as_str().unwrap_or("nothing") {
        "string" if schema["format"] == "date-time" => "date-time".into(),
        "array" => format!("[{}]", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("{{{}}}", type_of(&schema["additionalProperties"]))
        }
        name => name.into(),
    }
}

#[test]
fn every_field_has_a_description_and_schemas_are_structural() {
    for (kind, crd) in crds() {
        for schema in schemas(&crd) {
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 30), "{kind}");
            walk(&kind, schema);
        }
    }
}

fn walk(path: &str, schema: &Value) {
    let fields = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema}"));
    for never in ["$ref", "oneOf", "allOf", "not", "definitions", "default"] {
        assert!(!fields.contains_key(never), "{path} has {never}");
    }
    let typed = schema["type"].is_string()
        || schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    assert!(typed, "{path} has no type");
    if schema["x-kubernetes-int-or-string"] == true {
        assert!(schema["type"].is_null() && schema["pattern"].is_string(), "{path}");
    } else {
        assert!(schema["anyOf"].is_null(), "{path} has anyOf");
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if !(name == "metadata" && below["properties"].is_null()) {
            assert!(below["description"].as_str().is_some_and(|text| text.len() > 3), "{path}");
        }
        walk(&path, below);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner]);
        }
    }
}

#[test]
fn kinds_have_documented_names_and_columns() {
    let crds = crds();
    let columns = |kind: &str| {
        let columns = crds[kind]["spec"]["versions"][0]["additionalPrinterColumns"].clone();
        let column =
            |c: &Value| format!("{}:{}:{}", c["name"], c["type"], c["jsonPath"]).replace('"', "");
        columns.as_array().map(|all| all.iter().map(column).collect::<Vec<_>>()).unwrap_or_default()
    };
    // Kind, plural, scope, short names, categories, a subresource for the status.
    for (kind, plural, scope, short, categories, subresource) in [
        ("DataVolume", "datavolumes", "Namespaced", "dv,dvs", "all", true),
        ("DataSource", "datasources", "Namespaced", "das", "all", false),
        ("DataImportCron", "dataimportcrons", "Namespaced", "dic,dics", "all", false),
        ("StorageProfile", "storageprofiles", "Cluster", "", "", true),
        ("CDIConfig", "cdiconfigs", "Cluster", "", "", false),
        ("CDI", "cdis", "Cluster", "cdi,cdis", "", false),
        ("ObjectTransfer", "objecttransfers", "Cluster", "ot,ots", "", true),
        ("VolumeImportSource", "volumeimportsources", "Namespaced", "", "", false),
        ("VolumeUploadSource", "volumeuploadsources", "Namespaced", "", "", false),
        ("VolumeCloneSource", "volumeclonesources", "Namespaced", "", "", false),
        ("OvirtVolumePopulator", "ovirtvolumepopulators", "Namespaced", "ovvp,ovvps", "", false),
        (
            "OpenstackVolumePopulator",
            "openstackvolumepopulators",
            "Namespaced",
            "osvp,osvps",
            "",
            false,
        ),
    ] {
        let spec = &crds[kind]["spec"];
        let list = |value: &Value| {
            let all = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            all.collect::<Vec<_>>().join(",")
        };
        assert_eq!(spec["names"]["plural"], plural);
        assert_eq!(spec["scope"], scope, "{kind}");
        assert_eq!(list(&spec["names"]["shortNames"]), short, "{kind}");
        assert_eq!(list(&spec["names"]["categories"]), categories, "{kind}");
        for version in spec["versions"].as_array().unwrap() {
            assert_eq!(version["subresources"]["status"].is_object(), subresource, "{kind}");
        }
    }
    assert_eq!(crds.len(), 12);
    assert_eq!(
        columns("DataVolume"),
        [
            "Phase:string:.status.phase",
            "Progress:string:.status.progress",
            "Restarts:integer:.status.restartCount",
            "Age:date:.metadata.creationTimestamp"
        ]
    );
    let installation = ["Age:date:.metadata.creationTimestamp", "Phase:string:.status.phase"];
    assert_eq!(columns("CDI"), installation);
    assert_eq!(columns("ObjectTransfer"), installation);
    assert_eq!(columns("DataImportCron"), ["Format:string:.status.sourceFormat"]);
    assert_eq!(columns("StorageProfile"), [""; 0]);

    let versions = crds["CDI"]["spec"]["versions"].as_array().unwrap();
    let version = |v: &Value| (v["name"].clone(), v["storage"] == true, v["served"] == true);
    assert_eq!(
        versions.iter().map(version).collect::<Vec<_>>(),
        [("v1beta1".into(), true, true), ("v1alpha1".into(), false, true)]
    );
}

#[test]
fn cel_rules_test_only_fields_that_are_never_null() {
    let crds = crds();
    let messages = |kind: &str, path: &str| {
        let schema = schemas(&crds[kind]).next().unwrap();
        let rules = field(schema, path).0.unwrap()["x-kubernetes-validations"].clone();
        let message = |rule: &Value| rule["message"].as_str().unwrap().to_owned();
        rules.as_array().into_iter().flatten().map(message).collect::<Vec<_>>()
    };
    assert_eq!(
        messages("DataVolume", "spec"),
        [
            "Missing Data volume PVC",
            "Duplicate storage definition, both target storage and target pvc defined",
            "External population is incompatible with Source and SourceRef",
            "Data volume should have either Source or SourceRef, or be externally populated",
        ]
    );
    let sources = ["Missing Data volume source", "Multiple Data volume sources"];
    assert_eq!(messages("DataVolume", "spec.source"), sources);
    assert_eq!(messages("DataImportCron", "spec.template.spec.source"), sources);
    let sources = ["Missing VolumeImport source", "Multiple VolumeImport sources"];
    assert_eq!(messages("VolumeImportSource", "spec.source"), sources);
    assert_eq!(
        messages("StorageProfile", "spec.claimPropertySets.accessModes"),
        ["Illegal AccessMode"]
    );
    assert_eq!(
        messages("ObjectTransfer", "spec.target"),
        ["Target namespace and/or target name must be supplied"]
    );

    let volume = schemas(&crds["DataVolume"]).next().unwrap();
    for path in ["spec.source", "spec.pvc", "spec.storage.dataSourceRef", "spec.source.http"] {
        assert!(field(volume, path).0.unwrap()["nullable"].is_null(), "{path}");
    }
    let config = schemas(&crds["CDIConfig"]).next().unwrap();
    for path in ["old", "intermediate", "modern", "custom"] {
        let path = format!("spec.tlsSecurityProfile.{path}");
        assert_eq!(field(config, &path).0.unwrap()["nullable"], true, "{path}");
    }
    for path in ["spec.filesystemOverhead", "status.filesystemOverhead"] {
        let overhead = field(config, path).0.unwrap();
        let pattern = r"^(0(?:\.\d{1,3})?|1)$";
        assert_eq!(overhead["properties"]["global"]["pattern"], pattern);
        let classes = &overhead["properties"]["storageClass"]["additionalProperties"];
        assert_eq!(classes["pattern"], pattern);
    }
}

#[test]
fn schemas_have_exactly_the_documented_bounds() {
    let crds = crds();
    let patches = "spec.customizeComponents.patches";
    for (kind, path, bound, value) in [
        ("CDI", patches, "x-kubernetes-list-type", Value::from("atomic")),
        ("CDI", "spec.customizeComponents.patches.resourceName", "minLength", 1.into()),
        ("CDI", "spec.customizeComponents.patches.resourceType", "minLength", 1.into()),
        ("DataImportCron", "spec.serviceAccountName", "minLength", 1.into()),
        ("DataImportCron", "spec.managedDataSource", "maxLength", Value::Null),
        ("DataImportCron", "spec.importsToKeep", "minimum", Value::Null),
        ("DataImportCron", "spec.importsToKeep", "format", "int32".into()),
        ("DataVolume", "status.restartCount", "format", "int32".into()),
        ("CDIConfig", "spec.webhookPvcRendering", "enum", Value::Null),
        ("StorageProfile", "spec.cloneStrategy", "enum", Value::Null),
        ("StorageProfile", "spec.dataImportCronSourceFormat", "enum", Value::Null),
        ("StorageProfile", "spec.claimPropertySets", "maxItems", 8.into()),
        ("StorageProfile", "spec.claimPropertySets.accessModes", "maxItems", 4.into()),
        ("StorageProfile", "status.claimPropertySets", "maxItems", 8.into()),
    ] {
        for schema in schemas(&crds[kind]) {
            let found = field(schema, path).0.unwrap_or_else(|| panic!("{kind} has no {path}"));
            assert_eq!(found[bound], value, "{kind} {path}: {bound}");
        }
    }
    let volume = schemas(&crds["DataVolume"]).next().unwrap();
    for member in ["url", "imageStream", "pullMethod", "secretRef", "certConfigMap"] {
        let path = format!("spec.source.registry.{member}");
        assert_eq!(field(volume, &path).0.unwrap()["nullable"], true, "{path}");
    }
}

/// Reads an object and returns the fields that the type does not have.
fn unknown_fields<T: DeserializeOwned + serde::Serialize>(object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let read: T = serde_ignored::deserialize(object, |path| unknown.push(path.to_string()))
        .unwrap_or_else(|error| panic!("{error}: {object}"));
    // The types are of one kind each, and leave its name to their `Resource` implementation.
    unknown.retain(|path| path != "apiVersion" && path != "kind");
    let again = serde_json::to_value(&read).unwrap();
    serde_json::from_value::<T>(again).expect("what was written can be read");
    unknown
}

#[test]
fn examples_have_no_unknown_fields() {
    let mut seen = BTreeMap::<String, usize>::new();
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in yaml_serde::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).unwrap();
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let unknown = match kind.as_str() {
                "CDI" => unknown_fields::<kinds::Cdi>(&object),
                "DataImportCron" => unknown_fields::<kinds::DataImportCron>(&object),
                "DataSource" => unknown_fields::<kinds::DataSource>(&object),
                "DataVolume" => unknown_fields::<kinds::DataVolume>(&object),
                "StorageProfile" => unknown_fields::<kinds::StorageProfile>(&object),
                "UploadTokenRequest" => unknown_fields::<kinds::UploadTokenRequest>(&object),
                "VolumeCloneSource" => unknown_fields::<kinds::VolumeCloneSource>(&object),
                "VolumeImportSource" => unknown_fields::<kinds::VolumeImportSource>(&object),
                "VolumeUploadSource" => unknown_fields::<kinds::VolumeUploadSource>(&object),
                _ => continue,
            };
            assert_eq!(unknown, [""; 0], "{path:?}");
            *seen.entry(kind).or_default() += 1;
        }
    }
    assert!(seen["DataVolume"] >= 20, "{seen:?}");
    assert_eq!(seen.len(), 9, "{seen:?}");
}

#[test]
fn cluster_types_and_cdi_apply_read_manifests_alike() {
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs/examples")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for document in api::read(&text).unwrap() {
            let api::Document::DataVolume(volume) = document else { continue };
            let plain = serde_json::to_value(&volume.spec).unwrap();
            let served: kinds::DataVolumeSpec = serde_json::from_value(plain.clone()).unwrap();
            assert_eq!(serde_json::to_value(&served).unwrap(), plain, "{}", volume.metadata.name);
        }
    }
}
