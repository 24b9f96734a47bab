//! Sources of forklift's imports: disks of oVirt, images of OpenStack.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A disk of oVirt.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "forklift.cdi.kubevirt.io",
    version = "v1beta1",
    kind = "OvirtVolumePopulator",
    plural = "ovirtvolumepopulators",
    namespaced,
    shortname = "ovvp",
    shortname = "ovvps",
    status = "PopulatorProgress",
    derive = "PartialEq",
    doc = "An OvirtVolumePopulator is a disk of oVirt that PVCs are filled with when their dataSourceRef names it."
)]
#[serde(rename_all = "camelCase")]
pub struct OvirtVolumePopulatorSpec {
    /// Address of the engine.
    pub engine_url: String,
    /// A Secret with user, password and CA.
    pub secret_ref: String,
    /// The disk's identifier.
    pub disk_id: String,
    /// The network of the worker pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_network: Option<String>,
}

/// An image of OpenStack.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "forklift.cdi.kubevirt.io",
    version = "v1beta1",
    kind = "OpenstackVolumePopulator",
    plural = "openstackvolumepopulators",
    namespaced,
    shortname = "osvp",
    shortname = "osvps",
    status = "PopulatorProgress",
    derive = "PartialEq",
    doc = "An OpenstackVolumePopulator is an image of OpenStack that PVCs are filled with when their dataSourceRef \
           names it."
)]
#[serde(rename_all = "camelCase")]
pub struct OpenstackVolumePopulatorSpec {
    /// Address of the identity service.
    pub identity_url: String,
    /// A Secret with credentials and CA.
    pub secret_ref: String,
    /// The image's identifier.
    pub image_id: String,
    /// The network of the worker pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_network: Option<String>,
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PopulatorProgress {
    /// Share of the content that is transferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}
