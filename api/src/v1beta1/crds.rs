//! The CRDs of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::{
    Cdi, CdiConfig, DataImportCron, DataSource, DataVolume, ObjectTransfer,
    OpenstackVolumePopulator, OvirtVolumePopulator, StorageProfile, VolumeCloneSource,
    VolumeImportSource, VolumeUploadSource,
};
use crate::labels;

/// A CRD for each kind, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        with_old_version(status_written_with_the_object(Cdi::crd())),
        status_written_with_the_object(CdiConfig::crd()),
        status_written_with_the_object(DataImportCron::crd()),
        status_written_with_the_object(DataSource::crd()),
        DataVolume::crd(),
        ObjectTransfer::crd(),
        status_written_with_the_object(OpenstackVolumePopulator::crd()),
        status_written_with_the_object(OvirtVolumePopulator::crd()),
        StorageProfile::crd(),
        status_written_with_the_object(VolumeCloneSource::crd()),
        status_written_with_the_object(VolumeImportSource::crd()),
        status_written_with_the_object(VolumeUploadSource::crd()),
    ];
    for crd in &mut all {
        // Only the installation's own kind is there before the operator is.
        let label = if crd.spec.names.kind == "CDI" { labels::OPERATOR } else { labels::COMPONENT };
        crd.metadata.labels.get_or_insert_default().insert(label.into(), String::new());
        for version in &mut crd.spec.versions {
            if let Some(schema) = version.schema.as_mut() {
                schema.open_api_v3_schema = schema.open_api_v3_schema.as_ref().map(completed);
            }
        }
    }
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// Clients write the status of these kinds by a plain update of the object.
fn status_written_with_the_object(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

/// Objects of long ago may still be stored as `v1alpha1`, which had the same fields.
fn with_old_version(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut old = crd.spec.versions[0].clone();
    old.name = "v1alpha1".into();
    old.storage = false;
    old.deprecated = Some(true);
    old.deprecation_warning =
        Some("cdi.kubevirt.io/v1alpha1 CDI is deprecated, use cdi.kubevirt.io/v1beta1".into());
    crd.spec.versions.push(old);
    crd
}

/// What the derive cannot say.
fn completed(schema: &JSONSchemaProps) -> JSONSchemaProps {
    let mut value = serde_json::to_value(schema).expect("a schema is JSON");
    complete(&mut value);
    serde_json::from_value(value).expect("it was a schema before")
}

/// Quantities as Kubernetes writes them, in decimal or binary units.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

fn complete(schema: &mut Value) {
    if schema["x-kubernetes-int-or-string"] == true {
        schema["anyOf"] = json!([{ "type": "integer" }, { "type": "string" }]);
        schema["pattern"] = QUANTITY.into();
        schema["description"] = "An amount, such as 10Gi, 500M or 1073741824.".into();
    }
    for path in asked_for(schema) {
        // `has()` of a field that is there and null is true, so a field that a rule asks for is there or not.
        if let Some(field) = schema.pointer_mut(&path).and_then(Value::as_object_mut) {
            field.remove("nullable");
        }
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(complete),
        Value::Array(items) => items.iter_mut().for_each(complete),
        _ => {}
    }
}

/// The fields below that the rules of this schema test with `has()`, as pointers.
fn asked_for(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules
        .filter_map(|rule| rule["rule"].as_str())
        .flat_map(|rule| rule.split("has(self.").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(|path| format!("/properties/{}", path.replace('.', "/properties/")))
        .collect()
}

/// The CRDs as files: name and content.
pub fn manifests() -> Vec<(String, String)> {
    let file = |crd: &CustomResourceDefinition| {
        let name = crd.metadata.name.as_deref().expect("a CRD has a name");
        // By way of JSON, whose fields are sorted: the same types always give the same text.
        let value = serde_json::to_value(crd).expect("a CRD is JSON");
        let text = yaml_serde::to_string(&value).expect("JSON is YAML");
        let head = "# Made by `cargo xtask manifests` from the types in api/src/v1beta1. Do not edit.\n---\n";
        (format!("{name}.yaml"), format!("{head}{text}"))
    };
    crds().iter().map(file).collect()
}
