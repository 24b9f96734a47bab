//! The names under which the controllers record events. Clients look for them.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

pub const DATA_VOLUME_IMPORT: &str = "datavolume-import-controller";
pub const DATA_VOLUME_UPLOAD: &str = "datavolume-upload-controller";
pub const DATA_VOLUME_EXTERNAL: &str = "datavolume-external-population-controller";
pub const DATA_VOLUME_PVC_CLONE: &str = "datavolume-pvc-clone-controller";
pub const DATA_VOLUME_SNAPSHOT_CLONE: &str = "datavolume-snapshot-clone-controller";
pub const IMPORT_POPULATOR: &str = "import-populator";
pub const UPLOAD_POPULATOR: &str = "upload-populator";
pub const CLONE_POPULATOR: &str = "clone-populator";
pub const HOST_COPY: &str = "clone-controller";
pub const IMPORT: &str = "import-controller";
pub const UPLOAD: &str = "upload-controller";
pub const FORKLIFT: &str = "forklift-populator-controller";
pub const DATA_IMPORT_CRON: &str = "dataimportcron-controller";
pub const CONFIG: &str = "config-controller";

pub const ALL: [&str; 14] = [
    DATA_VOLUME_IMPORT,
    DATA_VOLUME_UPLOAD,
    DATA_VOLUME_EXTERNAL,
    DATA_VOLUME_PVC_CLONE,
    DATA_VOLUME_SNAPSHOT_CLONE,
    IMPORT_POPULATOR,
    UPLOAD_POPULATOR,
    CLONE_POPULATOR,
    HOST_COPY,
    IMPORT,
    UPLOAD,
    FORKLIFT,
    DATA_IMPORT_CRON,
    CONFIG,
];

/// The populator of a PVC. One controller fills imports and uploads, under two names.
pub fn populator_of(target: &PersistentVolumeClaim) -> &'static str {
    let reference = target.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref());
    match reference.map(|reference| reference.kind.as_str()) {
        Some("VolumeUploadSource") => UPLOAD_POPULATOR,
        Some("OvirtVolumePopulator" | "OpenstackVolumePopulator") => FORKLIFT,
        _ => IMPORT_POPULATOR,
    }
}
