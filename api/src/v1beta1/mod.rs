//! The objects as a cluster serves them: every kind of the groups `cdi.kubevirt.io` and `forklift.cdi.kubevirt.io`, with
//! the schema that its CRD carries, and the upload token's aggregated kind.
//!
//! Descriptions are part of the API (`kubectl explain` prints them), and so are the names of fields. These types take
//! objects that a cluster's schema has accepted; [`crate::document`] reads manifests that are not validated yet, and reports
//! what is wrong with them.

mod cdi;
mod cdi_config;
mod condition;
mod crds;
mod data_import_cron;
mod data_source;
mod data_volume;
mod forklift;
mod object_transfer;
mod populator;
mod resolve_tls_profile;
mod source;
mod status_time;
mod storage_profile;
mod upload_token;

pub use cdi::{
    Cdi, CdiSpec, CdiStatus, CertConfig, CertSettings, CloneStrategyOverride, ComponentFlags,
    CustomizeComponents, CustomizePatch, ImagePullPolicy, InfraPlacement, NodePlacement,
    UninstallStrategy,
};
pub use cdi_config::{
    CdiConfig, CdiConfigSpec, CdiConfigStatus, Empty, FilesystemOverhead, ImportProxy,
    TlsCustomProfile, TlsProfileType, TlsSecurityProfile, TlsVersion,
};
pub use condition::Condition;
pub use crds::{crds, manifests};
pub use data_import_cron::{
    DataImportCron, DataImportCronSpec, DataImportCronStatus, DataVolumeTemplate, ImportStatus,
    ImportedClaim,
};
pub use data_source::{
    DataSource, DataSourceReference, DataSourceSource, DataSourceSpec, DataSourceStatus,
};
pub use data_volume::{
    Checkpoint, ContentType, DataVolume, DataVolumeSourceRef, DataVolumeSpec, DataVolumeStatus,
    StorageSpec,
};
pub use forklift::{
    OpenstackVolumePopulator, OpenstackVolumePopulatorSpec, OvirtVolumePopulator,
    OvirtVolumePopulatorSpec, PopulatorProgress,
};
pub use object_transfer::{
    ObjectTransfer, ObjectTransferSpec, ObjectTransferStatus, TransferSource, TransferTarget,
};
pub use populator::{
    ImportSource, VolumeCloneSource, VolumeCloneSourceSpec, VolumeImportSource,
    VolumeImportSourceSpec, VolumeSourceStatus, VolumeUploadSource, VolumeUploadSourceSpec,
};
pub use resolve_tls_profile::{ResolvedTlsProfile, resolve_tls_profile};
pub use source::{
    BlankSource, DataVolumeSource, GcsSource, HttpSource, ImageioSource, ObjectSource,
    RegistryPlatform, RegistrySource, S3Source, UploadSource, VddkSource,
};
pub use storage_profile::{
    ClaimPropertySet, ClaimVolumeMode, StorageProfile, StorageProfileSpec, StorageProfileStatus,
};
pub use upload_token::{UploadTokenRequest, UploadTokenRequestSpec, UploadTokenRequestStatus};
