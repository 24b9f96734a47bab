//! Sentences that existing clients, controllers and tests look for. None may be reworded.

/// The message of a complete import.
pub const COMPLETE: &str = "Import Complete";
/// Before why an image could not be brought over.
pub const PROCESSING: &str = "Unable to process data: ";
/// Before why an empty disk could not be made.
pub const BLANK: &str = "Unable to create blank image: ";
/// An empty disk has no files in it.
pub const BLANK_ARCHIVE: &str = "Cannot create empty disk with content type archive";
/// Nothing could be learnt of the image.
pub const INFO: &str = "Unable to obtain information about data source: ";
/// The bytes did not come. These words are looked for even where no scratch space is involved.
pub const TRANSFER_SCRATCH: &str = "Unable to transfer source data to scratch space: ";
/// The files of an archive did not all get there.
pub const TRANSFER_DIRECTORY: &str = "Unable to transfer source data to target directory: ";
/// The bytes did not come, or could not be written.
pub const TRANSFER_FILE: &str = "Unable to transfer source data to target file: ";
/// The bytes are no image that can be decoded here.
pub const CONVERT: &str = "Unable to convert source data to target format: ";
/// Makes the reason `ImagePullFailed`, wherever it stands.
pub const PULL_FAILED: &str = "failed to pull image: ";
/// Follows the refusal of an image by its format: how to set the source format to raw.
pub const RAW_FORMAT_HINT: &str = " (annotation cdi.kubevirt.io/storage.sourceFormat: raw)";
/// Any of these makes the message `DataVolume too small to contain image`.
pub const TOO_SMALL: [&str; 4] = [
    "is larger than the reported available",
    "no space left on device",
    "file largest block is bigger than maxblock",
    "disk quota exceeded",
];

/// Before why a source could not be reached.
pub fn connecting(source: &str) -> String {
    format!("Unable to connect to {source} data source: ")
}

/// A kind of source that there is none of.
pub fn unknown_source(source: &str) -> String {
    format!("Unknown data source: {source}")
}

/// The container beside never got ready.
pub fn ready_timeout(path: &str) -> String {
    format!("Timeout waiting for file {path}")
}

/// Logged once the disk at `path` is safe on its storage.
pub fn committed(path: &str) -> String {
    format!("Successfully completed fsync({path}) syscall, committed to disk")
}
