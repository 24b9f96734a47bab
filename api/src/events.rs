//! Reasons of events.

/// No claim can be made of a DataVolume.
pub const CLAIM_NOT_VALID: &str = "ErrClaimNotValid";
/// A quota stands in the way.
pub const EXCEEDED_QUOTA: &str = "ErrExceededQuota";
/// A claim of that name belongs to somebody else.
pub const RESOURCE_EXISTS: &str = "ErrResourceExists";
/// A DataVolume is gone after its time, and its claim is not.
pub const DATA_VOLUME_COLLECTED: &str = "DataVolumeCollected";
/// A claim of that name is going away.
pub const RESOURCE_MARKED_FOR_DELETION: &str = "ErrResourceMarkedForDeletion";
/// Something that is referred to is not there.
pub const RESOURCE_DOES_NOT_EXIST: &str = "ErrResourceDoesntExist";
/// The claim has lost its volume.
pub const CLAIM_LOST: &str = "ErrClaimLost";
/// A claim fits no clone.
pub const INCOMPATIBLE_PVC: &str = "ErrIncompatiblePVC";
/// A worker cannot be made.
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
/// Between two stages.
pub const IMPORT_PAUSED: &str = "ImportPaused";
/// Somebody uses the claim.
pub const IMPORT_TARGET_IN_USE: &str = "ImportTargetInUse";
/// Phase of an upload.
pub const UPLOAD_SCHEDULED: &str = "UploadScheduled";
/// Phase of an upload.
pub const UPLOAD_READY: &str = "UploadReady";
/// Phase of an upload.
pub const UPLOAD_FAILED: &str = "UploadFailed";
/// Phase of an upload.
pub const UPLOAD_SUCCEEDED: &str = "UploadSucceeded";
/// Somebody uses the claim.
pub const UPLOAD_TARGET_IN_USE: &str = "UploadTargetInUse";
/// Phase of a clone.
pub const CLONE_SCHEDULED: &str = "CloneScheduled";
/// Phase of a clone.
pub const CLONE_IN_PROGRESS: &str = "CloneInProgress";
/// Phase of a clone.
pub const CLONE_FAILED: &str = "CloneFailed";
/// Phase of a clone.
pub const CLONE_SUCCEEDED: &str = "CloneSucceeded";
/// The source of a clone is not there.
pub const CLONE_WITHOUT_SOURCE: &str = "CloneWithoutSource";
/// A clone asks for what cannot be.
pub const CLONE_VALIDATION_FAILED: &str = "CloneValidationFailed";
/// Somebody uses the source of a clone.
pub const CLONE_SOURCE_IN_USE: &str = "CloneSourceInUse";
/// Nobody but pods can fill the claim of a clone.
pub const NO_POPULATOR: &str = "NoPopulator";
/// Somebody else filled the volume.
pub const EXTERNAL_POPULATION_SUCCEEDED: &str = "ExternalPopulationSucceeded";
/// Nobody can fill the volume.
pub const NO_CSI_DRIVER_FOR_EXTERNAL_POPULATION: &str = "NoCSIDriverForExternalPopulation";
/// The cluster drops what a populator needs.
pub const NO_ANY_VOLUME_DATA_SOURCE: &str = "NoAnyVolumeDataSource";
/// The claim that is filled has been made.
pub const PRIME_CREATED: &str = "CreatedPVCPrimeSuccessfully";
/// The claim that is filled cannot be made.
pub const PRIME_FAILED: &str = "ErrCreatingPVCPrime";
/// The claim that was filled is kept.
pub const PRIME_RETAINED: &str = "RetainedPVCPrime";
/// Of the import populator, in lower case on the wire.
pub const POPULATOR_IMPORT_FAILED: &str = "importFailed";
/// Of the import populator, in lower case on the wire.
pub const POPULATOR_IMPORT_SUCCEEDED: &str = "importSucceeded";
/// Of the settings: servers do not do what their profile of TLS asks for.
pub const TLS_PROFILE_NOT_MET: &str = "TLSProfileNotMet";
/// Of the CDIConfig: a setting has no effect.
pub const SETTING_IGNORED: &str = "SettingIgnored";
/// The controllers skip an object that they cannot decode.
pub const CANNOT_DECODE: &str = "CannotDecode";
/// Of the settings: credentials of a proxy are where every user may read them.
pub const PROXY_CREDENTIALS_VISIBLE: &str = "ProxyCredentialsVisible";
/// A DataSource has a manager already.
pub const DATA_SOURCE_ALREADY_MANAGED: &str = "ErrDataSourceAlreadyManaged";

/// `type` of an event.
pub mod kind {
    /// As it should be.
    pub const NORMAL: &str = "Normal";
    /// Somebody should look.
    pub const WARNING: &str = "Warning";
}
