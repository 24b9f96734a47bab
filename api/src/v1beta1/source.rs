//! Where the content of a disk comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the content comes from: exactly one of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "[has(self.http), has(self.s3), has(self.gcs), has(self.registry), has(self.pvc), has(self.snapshot), \
                 has(self.upload), has(self.blank), has(self.imageio), has(self.vddk)].exists(member, member)",
        "message": "Missing Data volume source",
    },
    {
        "rule": "[has(self.http), has(self.s3), has(self.gcs), has(self.registry), has(self.pvc), has(self.snapshot), \
                 has(self.upload), has(self.blank), has(self.imageio), has(self.vddk)].filter(member, member).size() <= 1",
        "message": "Multiple Data volume sources",
    },
]))]
pub struct DataVolumeSource {
    /// A web server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// An object in S3 or a compatible store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
    /// An object in Google Cloud Storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs: Option<GcsSource>,
    /// A container disk in a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistrySource>,
    /// Another PVC, which is cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<ObjectSource>,
    /// A VolumeSnapshot, which is cloned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<ObjectSource>,
    /// Waits for an upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<UploadSource>,
    /// Nothing: an empty disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blank: Option<BlankSource>,
    /// A disk of oVirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imageio: Option<ImageioSource>,
    /// A disk of VMware, read with its own library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vddk: Option<VddkSource>,
}

/// A web server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// Address of the image, http:// or https://.
    pub url: String,
    /// A Secret with the keys accessKeyId and secretKey: user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap of PEM certificates to trust in addition to the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Headers to send with each request, such as "Name: value".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_headers: Option<Vec<String>>,
    /// Secrets, each value of which is a header to send with each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_extra_headers: Option<Vec<String>>,
    /// Checksum of the bytes before decompression, as algorithm:hex; the algorithm is md5, sha1, sha256 or sha512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Do not verify the server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// An object in S3 or a compatible store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Source {
    /// Address of the object: https://host/bucket/key.
    pub url: String,
    /// A Secret with the keys accessKeyId and secretKey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap of PEM certificates to trust in addition to the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
}

/// An object in Google Cloud Storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsSource {
    /// Address of the object: gs://bucket/object.
    pub url: String,
    /// A Secret with the key credentials.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
}

/// A container disk in a registry. Either url or imageStream is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistrySource {
    /// Address of the image, docker://host/name:tag or oci-archive:path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Name of an ImageStream, which needs pullMethod node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_stream: Option<String>,
    /// Who pulls the image: the worker (pod, the default) or the container runtime of its node (node).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_method: Option<String>,
    /// A Secret with the keys accessKeyId and secretKey: user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap of PEM certificates to trust in addition to the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Which image of an index to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<RegistryPlatform>,
}

/// Which image of an index to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegistryPlatform {
    /// Architecture of the image, such as amd64, arm64 or s390x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

/// An object that may be in another namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectSource {
    /// Namespace of the source.
    pub namespace: String,
    /// Name of the source.
    pub name: String,
}

/// Waits for an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UploadSource {}

/// An empty disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlankSource {}

/// A disk of oVirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageioSource {
    /// Address of the engine.
    pub url: String,
    /// The disk's identifier.
    pub disk_id: String,
    /// A Secret with the keys accessKeyId and secretKey: user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap of PEM certificates to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Do not verify the server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}

/// A disk of VMware, read with its own library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VddkSource {
    /// Address of the vCenter or ESXi host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// UUID of the virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Path of the disk in its datastore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    /// Thumbprint of the host's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thumbprint: Option<String>,
    /// A Secret with the keys accessKeyId and secretKey: user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// A ConfigMap of PEM certificates to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_config_map: Option<String>,
    /// Image that holds the library, instead of the one that the cluster names.
    #[serde(default, rename = "initImageURL", skip_serializing_if = "Option::is_none")]
    pub init_image_url: Option<String>,
    /// A ConfigMap with more options for the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<String>,
}
