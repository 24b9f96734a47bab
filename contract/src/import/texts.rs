//! Texts that upstream's clients, controllers and tests match. None may be changed.

/// Termination message of a complete import.
pub const COMPLETE: &str = "Import Complete";
/// Precedes the cause of a failed import.
pub const PROCESSING: &str = "Unable to process data: ";
/// Precedes the cause of a failed empty disk.
pub const BLANK: &str = "Unable to create blank image: ";
/// An empty disk cannot have content type archive.
pub const BLANK_ARCHIVE: &str = "Cannot create empty disk with content type archive";
/// Precedes the cause if the source could not be probed.
pub const INFO: &str = "Unable to obtain information about data source: ";
/// Precedes the cause of a failed download. Clients match it even where no scratch space is involved.
pub const TRANSFER_SCRATCH: &str = "Unable to transfer source data to scratch space: ";
/// Precedes the cause of a failed extraction.
pub const TRANSFER_DIRECTORY: &str = "Unable to transfer source data to target directory: ";
/// Precedes the cause of a failed download or write.
pub const TRANSFER_FILE: &str = "Unable to transfer source data to target file: ";
/// Precedes the cause of a failed conversion.
pub const CONVERT: &str = "Unable to convert source data to target format: ";
/// Anywhere in a message, it causes the reason `ImagePullFailed`.
pub const PULL_FAILED: &str = "failed to pull image: ";
/// Appended if the image's format is unsupported: how to import it unchanged.
pub const RAW_FORMAT_HINT: &str = " (annotation cdi.kubevirt.io/storage.sourceFormat: raw)";
/// Stands between the size of an image and that of the volume, both in bytes: the image does not fit.
pub const LARGER_THAN: &str = " is larger than the reported available storage ";
/// Any of these causes a message that begins with `DataVolume too small to contain image`.
pub const TOO_SMALL: [&str; 4] = [
    "is larger than the reported available",
    "no space left on device",
    "file largest block is bigger than maxblock",
    "disk quota exceeded",
];

/// Precedes the cause if the source could not be reached.
pub fn connecting(source: &str) -> String {
    format!("Unable to connect to {source} data source: ")
}

/// Message for [`super::SourceKind::Unknown`].
pub fn unknown_source(source: &str) -> String {
    format!("Unknown data source: {source}")
}

/// Node pull: the second container did not become ready.
pub fn ready_timeout(path: &str) -> String {
    format!("Timeout waiting for file {path}")
}

/// Logged after the fsync of the disk at `path`.
pub fn committed(path: &str) -> String {
    format!("Successfully completed fsync({path}) syscall, committed to disk")
}
