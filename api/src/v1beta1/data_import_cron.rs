//! DataImportCron: a disk that is imported again whenever its source changes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::data_volume::{DataVolumeSpec, DataVolumeStatus};
use super::status_time;

/// What is imported, and how often somebody looks for a newer version.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "DataImportCron",
    plural = "dataimportcrons",
    namespaced,
    shortname = "dic",
    shortname = "dics",
    category = "all",
    status = "DataImportCronStatus",
    derive = "PartialEq",
    doc = "A DataImportCron looks for a newer version of an image now and then, imports it and has a DataSource \
           stand for it.",
    printcolumn(
        name = "Format",
        type_ = "string",
        json_path = ".status.sourceFormat",
        description = "What the imported disk is kept as"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct DataImportCronSpec {
    /// The DataVolume that each import makes. Its source is registry, pvc, http or s3.
    pub template: DataVolumeTemplate,
    /// When to look for a newer version, in the five fields of cron. Empty: never.
    pub schedule: String,
    /// Whether old imports are deleted: Outdated (which is usual) or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garbage_collect: Option<String>,
    /// How many imports are kept; usually 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports_to_keep: Option<i32>,
    /// Name of the DataSource that stands for the newest import.
    pub managed_data_source: String,
    /// What stays when the DataImportCron is deleted: All (which is usual) or None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<String>,
    /// Service account whose rights decide whether a source claim may be read; usually default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub service_account_name: Option<String>,
}

/// The DataVolume that each import makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeTemplate {
    /// Version of the template; not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the template; not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Labels and annotations of the DataVolume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// What the DataVolume asks for.
    pub spec: DataVolumeSpec,
    /// Not looked at: what tools write into a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<DataVolumeStatus>,
}

/// Whatever metadata may hold: generated manifests have more in it than labels and annotations.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataImportCronStatus {
    /// The imports that are under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_imports: Option<Vec<ImportStatus>>,
    /// The claim of the last import that succeeded.
    #[serde(default, rename = "lastImportedPVC", skip_serializing_if = "Option::is_none")]
    pub last_imported_pvc: Option<ImportedClaim>,
    /// When somebody looked for a newer version last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_execution_timestamp: Option<Time>,
    /// When an import succeeded last.
    #[serde(
        default,
        deserialize_with = "status_time::deserialize",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_import_timestamp: Option<Time>,
    /// What the imported disk is kept as: pvc or snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_format: Option<String>,
    /// Progressing and UpToDate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
}

/// An import that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct ImportStatus {
    /// Name of the DataVolume.
    pub data_volume_name: String,
    /// Digest of the image.
    pub digest: String,
}

/// The claim of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportedClaim {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
}
