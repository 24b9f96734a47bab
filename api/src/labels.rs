//! Labels and finalizers.

/// On all objects that CDI creates, with [`APP_VALUE`].
pub const APP: &str = "app";
/// Value of [`APP`].
pub const APP_VALUE: &str = "containerized-data-importer";
/// Names the component of a pod or service: one of [`component`], or empty.
pub const COMPONENT: &str = "cdi.kubevirt.io";
/// The managing program: `cdi-controller`, `cdi-operator`, `cdi-apiserver`.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// `storage`.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// What the installation is part of; from the CDI object's labels.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Version of what the installation is part of; from the CDI object's labels.
pub const VERSION: &str = "app.kubernetes.io/version";
/// `true`: serves metrics.
pub const PROMETHEUS: &str = "prometheus.cdi.kubevirt.io";
/// On the pod of the operator, empty.
pub const OPERATOR: &str = "operator.cdi.kubevirt.io";
/// Name of the Service in front of an upload pod.
pub const SERVICE: &str = "service";
/// On upload pods: UID of the PVC.
pub const UPLOAD_TARGET: &str = "cdi.kubevirt.io/uploadTarget";
/// On a clone's source pod: its own name. Misspelt on the wire.
pub const CLONE_UNIQUE_ID: &str = "cdi.kubevirt.io/storage.clone.cloneUniqeId";
/// On a clone's source pod: UID of the source.
pub const CLONE_SOURCE: &str = "cdi.kubevirt.io/hostAssistedSourcePodCloneSource";
/// On intermediate objects of a clone: UID of the target.
pub const OWNED_BY_UID: &str = "cdi.kubevirt.io/OwnedByUID";
/// `true` on a DataVolume or PVC: the webhook completes the PVC from the StorageProfile.
pub const APPLY_STORAGE_PROFILE: &str = "cdi.kubevirt.io/applyStorageProfile";
/// The DataImportCron that created an object.
pub const DATA_IMPORT_CRON: &str = "cdi.kubevirt.io/dataImportCron";
/// Its namespace.
pub const DATA_IMPORT_CRON_NAMESPACE: &str = "cdi.kubevirt.io/dataImportCronNs";
/// On objects that are deleted together with their DataImportCron.
pub const DATA_IMPORT_CRON_CLEANUP: &str = "cdi.kubevirt.io/dataImportCron.cleanup";
/// On pods that poll for new images.
pub const DATA_IMPORT_CRON_POLLER: &str = "cdi.kubevirt.io/dataImportCronPoller";
/// `disabled`: no alert for a PVC that one disk fills.
pub const FILLING_UP_ALERT: &str = "alerts.k8s.io/KubePersistentVolumeFillingUp";
/// `true`: no backup of temporary PVCs.
pub const EXCLUDE_FROM_BACKUP: &str = "velero.io/exclude-from-backup";
/// The instance type that a disk is meant for.
pub const DEFAULT_INSTANCETYPE: &str = "instancetype.kubevirt.io/default-instancetype";
/// Its kind.
pub const DEFAULT_INSTANCETYPE_KIND: &str = "instancetype.kubevirt.io/default-instancetype-kind";
/// The preference that a disk is meant for.
pub const DEFAULT_PREFERENCE: &str = "instancetype.kubevirt.io/default-preference";
/// Its kind.
pub const DEFAULT_PREFERENCE_KIND: &str = "instancetype.kubevirt.io/default-preference-kind";
/// The disk takes SSH keys at run time.
pub const DYNAMIC_CREDENTIALS: &str = "kubevirt.io/dynamic-credentials-support";
/// Labels from which KubeVirt infers the settings of a virtual machine; also on DataSources.
pub const INFERRED_BY_KUBEVIRT: [&str; 5] = [
    DEFAULT_INSTANCETYPE,
    DEFAULT_INSTANCETYPE_KIND,
    DEFAULT_PREFERENCE,
    DEFAULT_PREFERENCE_KIND,
    DYNAMIC_CREDENTIALS,
];
/// `true`: a pod may talk to the API server and DNS.
pub const ALLOW_CLUSTER_SERVICES: &str = "np.kubevirt.io/allow-access-cluster-services";

/// Values of [`COMPONENT`].
pub mod component {
    /// A pod that imports.
    pub const IMPORTER: &str = "importer";
    /// A pod that is uploaded to.
    pub const UPLOAD_SERVER: &str = "cdi-upload-server";
    /// A pod that reads a clone's source.
    pub const CLONE_SOURCE: &str = "cdi-clone-source";
    /// A pod that binds and grows a PVC.
    pub const POPULATOR_PREP: &str = "cdi-populator-prep";
    /// A PVC restored from a snapshot, for pods to copy.
    pub const RESTORED: &str = "cdi-clone-from-snapshot-source-host-assisted-fallback-pvc";
    /// A pod that fills a PVC from an OvirtVolumePopulator or OpenstackVolumePopulator.
    pub const FORKLIFT_POPULATOR: &str = "cdi-forklift-populator";
    /// The controller.
    pub const DEPLOYMENT: &str = "cdi-deployment";
    /// The API server.
    pub const APISERVER: &str = "cdi-apiserver";
    /// The upload proxy.
    pub const UPLOADPROXY: &str = "cdi-uploadproxy";
    /// The operator.
    pub const OPERATOR: &str = "cdi-operator";
    /// The API server's service.
    pub const API: &str = "cdi-api";
    /// The Secret with the token keys.
    pub const KEYSTORE: &str = "keystore";
}

/// Finalizers.
pub mod finalizer {
    /// On a DataVolume that clones from another namespace.
    pub const DATA_VOLUME: &str = "cdi.kubevirt.io/dataVolumeFinalizer";
    /// On the target of a clone.
    pub const CLONE_POPULATOR: &str = "cdi.kubevirt.io/clonePopulator";
    /// On the target of a copy: its source pod is still there.
    pub const CLONE_SOURCE: &str = "cdi.kubevirt.io/cloneSource";
    /// On a PVC that an image stream is imported into.
    pub const IMPORT_IMAGE_STREAM: &str = "cdi.kubevirt.io/importImageStream";
    /// On an ObjectTransfer.
    pub const OBJECT_TRANSFER: &str = "cdi.kubevirt.io/objectTransfer";
    /// On the CDI object.
    pub const OPERATOR: &str = "operator.cdi.kubevirt.io";
}

/// Whether a label is copied from a source to the objects created from it: labels of KubeVirt are, as
/// `instancetype.kubevirt.io/default-preference`.
pub fn is_copied(key: &str) -> bool {
    let Some((prefix, name)) = key.split_once('/') else { return false };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let prefix_fits = prefix == "kubevirt.io"
        || prefix.strip_suffix(".kubevirt.io").is_some_and(|first| {
            !first.is_empty() && first.bytes().all(|byte| word(byte) || byte == b'.')
        });
    prefix_fits
        && !name.is_empty()
        && name.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kubevirt_labels_are_copied() {
        for key in [DEFAULT_PREFERENCE, DYNAMIC_CREDENTIALS, APPLY_STORAGE_PROFILE, UPLOAD_TARGET] {
            assert!(is_copied(key), "{key}");
        }
        for key in [
            APP,
            COMPONENT,
            MANAGED_BY,
            EXCLUDE_FROM_BACKUP,
            "kubevirt.io/",
            "kubevirt.io/a/b",
            "xkubevirt.io/a",
            ".kubevirt.iox/a",
            "",
            "a-b.kubevirt.io/c",
        ] {
            assert!(!is_copied(key), "{key}");
        }
    }
}
