//! CDIConfig: settings of the whole cluster, and what they come to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Settings of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "CDIConfig",
    root = "CdiConfig",
    plural = "cdiconfigs",
    status = "CdiConfigStatus",
    derive = "PartialEq",
    doc = "The CDIConfig named config shows which settings are in force. They are made in spec.config of the CDI object."
)]
#[serde(rename_all = "camelCase")]
pub struct CdiConfigSpec {
    /// Address of the upload proxy that clients are told, instead of the one that was found.
    #[serde(default, rename = "uploadProxyURLOverride", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url_override: Option<String>,
    /// Proxies between importers and their sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class of scratch space; usually that of the claim it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// CPU and memory of worker pods. What is not said keeps its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resource_requirements: Option<ResourceRequirements>,
    /// Features to turn on: HonorWaitForFirstConsumer, DataVolumeClaimAdoption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_gates: Option<Vec<String>>,
    /// Whether claims with the label cdi.kubevirt.io/applyStorageProfile are completed by a webhook: Enabled (which is
    /// usual) or Disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_pvc_rendering: Option<String>,
    /// How much of a volume its file system needs for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether every byte of a disk gets its room on the storage at once, where the DataVolume says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Registries to talk to without checking certificates, as host or host:port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_registries: Option<Vec<String>>,
    /// For how many seconds a DataVolume stays once it is done; its claim stays whatever becomes of it. Counts for
    /// DataVolumes that begin after it was set and that nothing owns. Less than zero, as absent: they stay for ever.
    #[serde(default, rename = "dataVolumeTTLSeconds", skip_serializing_if = "Option::is_none")]
    pub data_volume_ttl_seconds: Option<i32>,
    /// Which versions and ciphers of TLS the servers offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
    /// Secrets to pull the images of worker pods with. They have to be in each namespace that has workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// How much is logged, from 1; usually what the operator was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<i32>,
}

/// Proxies between importers and their sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportProxy {
    /// Address of the proxy for http.
    #[serde(default, rename = "HTTPProxy", skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// Address of the proxy for https.
    #[serde(default, rename = "HTTPSProxy", skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts to talk to without a proxy, with commas in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// A ConfigMap of the installation's namespace with the proxy's authority under ca.crt.
    #[serde(default, rename = "trustedCAProxy", skip_serializing_if = "Option::is_none")]
    pub trusted_ca_proxy: Option<String>,
}

/// How much of a volume its file system needs for itself, as a fraction from 0 to 1 with at most three decimals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemOverhead {
    /// Where the storage class has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "percent")]
    pub global: Option<String>,
    /// By the name of the storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "percent_by_name")]
    pub storage_class: Option<BTreeMap<String, String>>,
}

const PERCENT: &str = r"^(0(?:\.\d{1,3})?|1)$";

fn percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "pattern": PERCENT })
}

fn percent_by_name(_: &mut SchemaGenerator) -> Schema {
    let percent = json_schema!({ "type": "string", "pattern": PERCENT });
    json_schema!({ "type": "object", "nullable": true, "additionalProperties": percent })
}

/// Which versions and ciphers of TLS are offered: one of the well-known profiles, or a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsSecurityProfile {
    /// Old, Intermediate, Modern or Custom.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TlsProfileType>,
    /// The profile for clients of long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Empty>,
    /// The profile for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<Empty>,
    /// The profile for TLS 1.3 alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modern: Option<Empty>,
    /// A list of one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<TlsCustomProfile>,
}

/// Nothing to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// A profile of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsProfileType {
    /// For clients of long ago.
    Old,
    /// For most.
    Intermediate,
    /// TLS 1.3 alone.
    Modern,
    /// A list of one's own.
    Custom,
}

/// Versions and ciphers of one's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsCustomProfile {
    /// Ciphers by their OpenSSL names. Unknown ones are left out.
    pub ciphers: Vec<String>,
    /// The least version to offer.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: TlsVersion,
}

/// A version of TLS.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum TlsVersion {
    /// 1.0
    VersionTLS10,
    /// 1.1
    VersionTLS11,
    /// 1.2
    VersionTLS12,
    /// 1.3
    VersionTLS13,
}

/// The settings in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdiConfigStatus {
    /// Host of the upload proxy, as clients outside of the cluster reach it.
    #[serde(default, rename = "uploadProxyURL", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url: Option<String>,
    /// PEM certificates to trust when talking to the upload proxy.
    #[serde(default, rename = "uploadProxyCA", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_ca: Option<String>,
    /// Proxies between importers and their sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class of scratch space; empty for that of the claim it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// CPU and memory of worker pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_pod_resource_requirements: Option<ResourceRequirements>,
    /// How much of a volume its file system needs for itself, for each storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether every byte of a disk gets its room on the storage at once, where the DataVolume says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Secrets to pull the images of worker pods with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
}
