//! CDI: the installation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cdi_config::CdiConfigSpec;
use super::condition::Condition;

/// How it is installed.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cdi.kubevirt.io",
    version = "v1beta1",
    kind = "CDI",
    root = "Cdi",
    plural = "cdis",
    shortname = "cdi",
    shortname = "cdis",
    status = "CdiStatus",
    derive = "PartialEq",
    doc = "The CDI object is the installation of the Containerized Data Importer: how its parts are deployed, and the \
           settings of the whole cluster.",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase")
)]
#[serde(rename_all = "camelCase")]
pub struct CdiSpec {
    /// When nodes pull the images of the installation: Always, IfNotPresent or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// What happens to DataVolumes when this object is deleted: RemoveWorkloads (the default) deletes them,
    /// BlockUninstallIfWorkloadsExist refuses the deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninstall_strategy: Option<UninstallStrategy>,
    /// Where the controllers and servers run, and how many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra: Option<InfraPlacement>,
    /// Where worker pods run. Default: any node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<NodePlacement>,
    /// Changes to the deployed objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customize_components: Option<CustomizeComponents>,
    /// How PVCs are cloned: copy, snapshot or csi-clone. Overrides the StorageProfile. Default: the StorageProfile's
    /// strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_strategy_override: Option<CloneStrategyOverride>,
    /// Settings of the whole cluster, which replace the whole spec of the CDIConfig. If the CDIConfig was edited, they
    /// have an effect only if this object has the annotation cdi.kubevirt.io/configAuthority; otherwise an event
    /// reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<CdiConfigSpec>,
    /// Validity of certificates, and when they are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config: Option<CertConfig>,
    /// Priority class of the controllers and servers. Default: kubevirt-cluster-critical, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
}

/// When nodes pull an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// For each pod.
    Always,
    /// Once.
    IfNotPresent,
    /// Images are present on the nodes already.
    Never,
}

/// What happens to DataVolumes when the installation is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UninstallStrategy {
    /// They are deleted.
    RemoveWorkloads,
    /// The installation stays while there are any.
    BlockUninstallIfWorkloadsExist,
}

/// How PVCs are cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CloneStrategyOverride {
    /// By a pod that reads and one that writes.
    Copy,
    /// By a snapshot that is restored.
    Snapshot,
    /// By the storage itself.
    CsiClone,
}

/// Where pods run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlacement {
    /// Labels that a node has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Affinity to nodes and other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that are tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// Where the controllers and servers run, and how many of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraPlacement {
    /// Labels that a node has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Affinity to nodes and other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Taints of nodes that are tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Number of controllers. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_replicas: Option<i32>,
    /// Number of API servers. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_replicas: Option<i32>,
    /// Number of upload proxies. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_proxy_replicas: Option<i32>,
}

/// Changes to the deployed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomizeComponents {
    /// Patches, in this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<CustomizePatch>>,
    /// Arguments of the processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<ComponentFlags>,
}

/// A patch of a deployed object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizePatch {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub resource_name: String,
    /// Kind of the object.
    #[schemars(length(min = 1))]
    pub resource_type: String,
    /// The patch.
    pub patch: String,
    /// How the patch is written: json, merge or strategic.
    #[serde(rename = "type")]
    pub type_: String,
}

/// Arguments of the processes, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentFlags {
    /// Of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<BTreeMap<String, String>>,
    /// Of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<BTreeMap<String, String>>,
    /// Of the upload proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_proxy: Option<BTreeMap<String, String>>,
}

/// Validity of certificates. Absent values have defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.ca) && has(self.ca.renewBefore) ? duration(self.ca.renewBefore) : duration('24h')) <= \
                 (has(self.ca) && has(self.ca.duration) ? duration(self.ca.duration) : duration('48h'))",
        "message": "ca.renewBefore is more than ca.duration",
    },
    {
        "rule": "(has(self.server) && has(self.server.renewBefore) ? duration(self.server.renewBefore) : duration('12h')) <= \
                 (has(self.server) && has(self.server.duration) ? duration(self.server.duration) : duration('24h'))",
        "message": "server.renewBefore is more than server.duration",
    },
    {
        "rule": "(has(self.server) && has(self.server.duration) ? duration(self.server.duration) : duration('24h')) <= \
                 (has(self.ca) && has(self.ca.duration) ? duration(self.ca.duration) : duration('48h'))",
        "message": "server.duration is more than ca.duration",
    },
    {
        "rule": "(has(self.client) && has(self.client.renewBefore) ? duration(self.client.renewBefore) : duration('12h')) <= \
                 (has(self.client) && has(self.client.duration) ? duration(self.client.duration) : duration('24h'))",
        "message": "client.renewBefore is more than client.duration",
    },
]))]
pub struct CertConfig {
    /// Of CAs. Default: duration 48h0m0s, renewBefore 24h0m0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<CertSettings>,
    /// Of servers. Default: duration 24h0m0s, renewBefore 12h0m0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<CertSettings>,
    /// Of clients. Default: duration 24h0m0s, renewBefore 12h0m0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<CertSettings>,
}

/// Validity of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.duration) || duration(self.duration) >= duration('10m')",
        "message": "duration has to be a duration of 10m or more",
    },
    {
        "rule": "!has(self.renewBefore) || duration(self.renewBefore) >= duration('10m')",
        "message": "renewBefore has to be a duration of 10m or more",
    },
]))]
pub struct CertSettings {
    /// How long it is valid, such as 24h0m0s; at least 10m.
    #[schemars(length(max = 40))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// How long before its end it is replaced, such as 12h0m0s; at least 10m, at most its duration.
    #[schemars(length(max = 40))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// State of the installation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdiStatus {
    /// Phase: Deploying, Deployed, Upgrading, Deleting, Deleted, Error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Available, Progressing and Degraded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// Version of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// The version that is being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<String>,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<String>,
}
