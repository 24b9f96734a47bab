//! CDIConfig: settings of the whole cluster, and the effective values.

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
    doc = "The CDIConfig named config shows the effective settings. Change them in spec.config of the CDI object."
)]
#[serde(rename_all = "camelCase")]
pub struct CdiConfigSpec {
    /// Address of the upload proxy for clients. Default: the host of the Ingress, or else of the OpenShift Route,
    /// that leads to cdi-uploadproxy.
    #[serde(default, rename = "uploadProxyURLOverride", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url_override: Option<String>,
    /// HTTP proxies that importers reach their sources through. Default: those of the OpenShift cluster, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class of scratch space, which few images need. Default, and where it names no class: the default class of
    /// the cluster, or else the class of the PVC that the scratch space is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// CPU and memory of worker pods, as limits and requests. Defaults: limits of cpu 750m and memory 600M, requests of
    /// cpu 100m and memory 60M. Each of the four counts by itself; other resources are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resource_requirements: Option<ResourceRequirements>,
    /// Features to turn on. HonorWaitForFirstConsumer: a PVC whose class waits for its first consumer is filled only
    /// once it has one. DataVolumeClaimAdoption: a DataVolume adopts a PVC of its name that has no controlling owner.
    /// Default: none. Other names have no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_gates: Option<Vec<String>>,
    /// Whether a webhook completes PVCs that have the label cdi.kubevirt.io/applyStorageProfile=true, by the
    /// StorageProfile of their class: Enabled or Disabled. Default: Enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_pvc_rendering: Option<String>,
    /// The share of a volume that its file system needs for itself; disks are limited to the rest. PVCs
    /// of DataVolumes with spec.storage are enlarged by it. Not used for block devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether disks are preallocated, unless their DataVolume specifies it. An import is slower, and no
    /// virtual machine runs out of storage later. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Registries, as host or host:port, that may have any certificate or no TLS at all. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_registries: Option<Vec<String>>,
    /// How many seconds after its completion a DataVolume is deleted; its PVC stays. Applies to DataVolumes that start
    /// after it was set and have no owner. Default, as for a negative number: they are not deleted.
    #[serde(default, rename = "dataVolumeTTLSeconds", skip_serializing_if = "Option::is_none")]
    pub data_volume_ttl_seconds: Option<i32>,
    /// Minimum TLS version and ciphers of servers: the API server, the upload proxy and the metrics of the controller and
    /// the operator from the next connection on, worker pods with their metrics from their start. Default: Intermediate.
    /// TLS 1.0 and 1.1 are never spoken; what of a profile cannot be met is reported by an event TLSProfileNotMet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
    /// Secrets to pull the images of worker pods with, by name. They have to be in each namespace that has workers.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Log verbosity of the programs and of the worker pods, as their flag -v: 0 to 3 and above. Has an effect in
    /// spec.config of the CDI object, where the operator has installed the programs. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_verbosity: Option<i32>,
    /// Whether workers fail where the kernel of the node does not enforce their whole sandbox, for which Linux 6.7 with
    /// Landlock is needed. The programs of the installation have the flag -require-sandbox=true. Default: false, each
    /// program runs with what the kernel supports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_sandbox: Option<bool>,
}

/// Proxies between importers and their sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportProxy {
    /// URL of the proxy for sources of http, such as http://user:password@proxy:3128. Default: none.
    #[serde(default, rename = "HTTPProxy", skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// URL of the proxy for sources of https. Default: none.
    #[serde(default, rename = "HTTPSProxy", skip_serializing_if = "Option::is_none")]
    pub https_proxy: Option<String>,
    /// Hosts, domains and networks to reach without a proxy, with commas between them. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Name of a ConfigMap in the namespace of the installation, whose key ca.crt has the certificates (PEM) to trust the
    /// proxy by. Default: none but those that are trusted anyway.
    #[serde(default, rename = "trustedCAProxy", skip_serializing_if = "Option::is_none")]
    pub trusted_ca_proxy: Option<String>,
}

/// The share of a volume that its file system needs for itself, from "0" to "1" with three decimals at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemOverhead {
    /// For all storage classes that are not named in storageClass, such as "0.06" for 6 %. Default: "0.055".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "percent")]
    pub global: Option<String>,
    /// For single storage classes, by their names. Default: none.
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
    /// Old, Intermediate, Modern or Custom. Default: Intermediate.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TlsProfileType>,
    /// May be {} if the type is Old: for outdated clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Empty>,
    /// May be {} if the type is Intermediate: for most clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intermediate: Option<Empty>,
    /// May be {} if the type is Modern: TLS 1.3 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modern: Option<Empty>,
    /// Ciphers and the minimum version, if the type is Custom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<TlsCustomProfile>,
}

/// Always {}.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// A profile of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsProfileType {
    /// For outdated clients.
    Old,
    /// For most clients.
    Intermediate,
    /// TLS 1.3 only.
    Modern,
    /// A custom list.
    Custom,
}

/// A custom minimum version and cipher list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsCustomProfile {
    /// Ciphers of TLS 1.2 by their OpenSSL names, such as ECDHE-RSA-AES128-GCM-SHA256. Unknown ones are left out; those of
    /// TLS 1.3 are always offered.
    pub ciphers: Vec<String>,
    /// The minimum version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13. What is older than
    /// VersionTLS12 counts as that.
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

/// The effective settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdiConfigStatus {
    /// Host of the upload proxy for clients outside the cluster: from the spec, else from the Ingress or Route.
    #[serde(default, rename = "uploadProxyURL", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_url: Option<String>,
    /// Certificates (PEM) by which clients outside of the cluster trust the upload proxy.
    #[serde(default, rename = "uploadProxyCA", skip_serializing_if = "Option::is_none")]
    pub upload_proxy_ca: Option<String>,
    /// HTTP proxies that importers reach their sources through: from the spec, else those of the OpenShift cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import_proxy: Option<ImportProxy>,
    /// Storage class of scratch space, if the configured one exists. Empty: the default class, else that of the PVC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_space_storage_class: Option<String>,
    /// CPU and memory of worker pods: from the spec, with defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_pod_resource_requirements: Option<ResourceRequirements>,
    /// The share of a volume that its file system needs for itself, for each existing storage class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem_overhead: Option<FilesystemOverhead>,
    /// Whether disks are preallocated, unless their DataVolume specifies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preallocation: Option<bool>,
    /// Secrets to pull the images of worker pods with, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
}
