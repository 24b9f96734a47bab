//! Reasons of events.

/// The DataVolume gives no valid PVC.
pub const CLAIM_NOT_VALID: &str = "ErrClaimNotValid";
/// A quota refuses an object.
pub const EXCEEDED_QUOTA: &str = "ErrExceededQuota";
/// A PVC of that name has another owner.
pub const RESOURCE_EXISTS: &str = "ErrResourceExists";
/// A DataVolume was deleted after its TTL; its PVC stays.
pub const DATA_VOLUME_COLLECTED: &str = "DataVolumeCollected";
/// A PVC of that name is terminating.
pub const RESOURCE_MARKED_FOR_DELETION: &str = "ErrResourceMarkedForDeletion";
/// A referenced object does not exist.
pub const RESOURCE_DOES_NOT_EXIST: &str = "ErrResourceDoesntExist";
/// The PVC has lost its volume.
pub const CLAIM_LOST: &str = "ErrClaimLost";
/// The target PVC is not compatible with the clone's source.
pub const INCOMPATIBLE_PVC: &str = "ErrIncompatiblePVC";
/// The worker pod cannot be created.
pub const STARTING_POD: &str = "ErrStartingPod";
/// A worker failed.
pub const IMPORT_ERROR: &str = "ErrImportFailed";
/// Phase of an import.
pub const IMPORT_SCHEDULED: &str = "ImportScheduled";
/// Phase of an import.
pub const IMPORT_IN_PROGRESS: &str = "ImportInProgress";
/// Phase of an import.
pub const IMPORT_FAILED: &str = "ImportFailed";
/// Phase of an import.
pub const IMPORT_SUCCEEDED: &str = "ImportSucceeded";
/// The import waits for the next checkpoint.
pub const IMPORT_PAUSED: &str = "ImportPaused";
/// Another pod uses the PVC.
pub const IMPORT_TARGET_IN_USE: &str = "ImportTargetInUse";
/// Phase of an upload.
pub const UPLOAD_SCHEDULED: &str = "UploadScheduled";
/// Phase of an upload.
pub const UPLOAD_READY: &str = "UploadReady";
/// Phase of an upload.
pub const UPLOAD_FAILED: &str = "UploadFailed";
/// Phase of an upload.
pub const UPLOAD_SUCCEEDED: &str = "UploadSucceeded";
/// Another pod uses the PVC.
pub const UPLOAD_TARGET_IN_USE: &str = "UploadTargetInUse";
/// Phase of a clone.
pub const CLONE_FAILED: &str = "CloneFailed";
/// Phase of a clone.
pub const CLONE_SUCCEEDED: &str = "CloneSucceeded";
/// The source of a clone does not exist.
pub const CLONE_WITHOUT_SOURCE: &str = "CloneWithoutSource";
/// The clone request is invalid.
pub const CLONE_VALIDATION_FAILED: &str = "CloneValidationFailed";
/// Another pod uses the source of a clone.
pub const CLONE_SOURCE_IN_USE: &str = "CloneSourceInUse";
/// No populator can fill the PVC; pods copy into it.
pub const NO_POPULATOR: &str = "NoPopulator";
/// A foreign populator filled the volume.
pub const EXTERNAL_POPULATION_SUCCEEDED: &str = "ExternalPopulationSucceeded";
/// The storage class has no CSI driver, so no populator can fill the volume.
pub const NO_CSI_DRIVER_FOR_EXTERNAL_POPULATION: &str = "NoCSIDriverForExternalPopulation";
/// The cluster drops `dataSourceRef`, which populators need.
pub const NO_ANY_VOLUME_DATA_SOURCE: &str = "NoAnyVolumeDataSource";
/// The prime PVC was created.
pub const PRIME_CREATED: &str = "CreatedPVCPrimeSuccessfully";
/// The prime PVC cannot be created.
pub const PRIME_FAILED: &str = "ErrCreatingPVCPrime";
/// The prime PVC is retained.
pub const PRIME_RETAINED: &str = "RetainedPVCPrime";
/// Of the import populator, in lower case on the wire.
pub const POPULATOR_IMPORT_FAILED: &str = "importFailed";
/// Of the import populator, in lower case on the wire.
pub const POPULATOR_IMPORT_SUCCEEDED: &str = "importSucceeded";
/// Of the CDIConfig: servers cannot meet a part of the TLS profile.
pub const TLS_PROFILE_NOT_MET: &str = "TLSProfileNotMet";
/// Of the CDIConfig: a setting has no effect.
pub const SETTING_IGNORED: &str = "SettingIgnored";
/// The controllers skip an object that they cannot decode.
pub const CANNOT_DECODE: &str = "CannotDecode";
/// Of the CDIConfig: proxy credentials are readable for every user.
pub const PROXY_CREDENTIALS_VISIBLE: &str = "ProxyCredentialsVisible";
/// A DataSource has a manager already.
pub const DATA_SOURCE_ALREADY_MANAGED: &str = "ErrDataSourceAlreadyManaged";

/// `type` of an event.
pub mod kind {
    /// Information.
    pub const NORMAL: &str = "Normal";
    /// The user or administrator should act.
    pub const WARNING: &str = "Warning";
}
