//! The volume of a DataVolume: `spec.pvc` and `spec.storage`.

use std::collections::BTreeMap;

use contract::Quantity;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// `spec.pvc`, used unchanged, or `spec.storage`, completed from the StorageProfile and enlarged by the
/// file system's overhead. Both have these fields, but for `volumeAttributesClassName`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// `ReadWriteOnce`, `ReadOnlyMany`, `ReadWriteMany`, `ReadWriteOncePod`. As text, since validation quotes others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// Which volumes may be bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The size, as `requests.storage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// A volume to bind by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// `None`: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// `None`: from the StorageProfile, else [`VolumeMode::Filesystem`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "volume_mode_if_given")]
    pub volume_mode: Option<VolumeMode>,
    /// A foreign populator fills the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<ObjectReference>,
    /// A foreign populator fills the volume; the newer form of `dataSource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<ObjectReference>,
    /// In `spec.pvc` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_attributes_class_name: Option<String>,
}

impl ClaimSpec {
    /// `resources.requests.storage`.
    pub fn requested(&self) -> Option<Quantity> {
        self.resources.as_ref()?.requests.get("storage").copied()
    }
}

/// How a pod sees the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeMode {
    /// A directory with the disk in a file.
    Filesystem,
    /// A device, which is the disk.
    Block,
    /// Decided by the StorageProfile when the PVC is created.
    FromStorageProfile,
}

// Some clients write an absent value as an empty string.
fn volume_mode_if_given<'de, D>(deserializer: D) -> Result<Option<VolumeMode>, D::Error>
where
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty());
    text.map(|text| VolumeMode::deserialize(text.into_deserializer())).transpose()
}

/// Amounts by resource name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Minimum amounts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
    /// Maximum amounts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
}

/// Selects objects by their labels; all conditions have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Label and value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Label, operator and values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One condition on a label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// What it is compared with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// `None`: the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `None`: where the referring object is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}
