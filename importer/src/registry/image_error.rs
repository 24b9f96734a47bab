//! What can be wrong with an image in a registry.

/// Why an image of a registry cannot be used. Texts in quotes and their order are those that clients know.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerImageError {
    /// An index without the wanted architecture.
    #[error(
        "Error retrieving image: choosing image instance: no image found in image index for \
         architecture {architecture:?}, variant \"\", OS \"linux\""
    )]
    NoInstance { architecture: String },
    /// The only image is of another architecture than was requested.
    #[error(
        "Error validating architecture: manifest image architecture: {found:?} doesn't match requested \
         architecture: {wanted:?}"
    )]
    Architecture { found: String, wanted: String },
    /// A bootable container, which holds no disk.
    #[error(
        "bootc image detected: it is a bootable container and holds no disk; make a disk image of it first"
    )]
    Bootc,
    /// No layer holds a disk.
    #[error("Failed to find VM disk image file in the container image")]
    NoDisk,
    /// What is in `/disk` is not one disk.
    #[error("Cannot locate image file: {because}")]
    DiskFolder {
        /// The text of upstream CDI.
        because: &'static str,
    },
    /// A link or a device instead of the disk.
    #[error("{name} in the container image is {what}, and the disk has to be a regular file")]
    NotAFile {
        /// As the layer has it.
        name: String,
        /// `a symbolic link`.
        what: &'static str,
    },
    /// A name that leads out.
    #[error("content filepath is tainted: {name}")]
    Tainted {
        /// As the layer has it.
        name: String,
    },
    /// A container disk is not compressed.
    #[error(
        "{name} in the container image is compressed ({compression}): decompress it before it is put into the image"
    )]
    CompressedDisk {
        /// As the layer has it.
        name: String,
        compression: String,
    },
    /// The bytes are not those that were named.
    #[error("the {what} is not what the image names: expected {expected}, got {found}")]
    Digest {
        /// `manifest`, `layer`.
        what: &'static str,
        /// As named, `sha256:…`.
        expected: String,
        found: String,
    },
    /// More or less than was named.
    #[error("the {what} is not what the image names: expected {expected} bytes, got {found}")]
    Length {
        /// `config`, `layer`.
        what: &'static str,
        expected: u64,
        /// What came, as far as it was read.
        found: u64,
    },
    /// A manifest, an index or a config that cannot be understood, or exceeds a limit.
    #[error("the {what} of the image is not acceptable: {because}")]
    Document {
        /// `manifest`, `index`, `config`.
        what: &'static str,
        because: String,
    },
    /// A layer with the media type of a tar that is none.
    #[error("a layer of the image cannot be read")]
    Layer(#[source] formats::Error),
    /// A file of images that cannot be used.
    #[error("{path} is not a usable OCI archive: {because}")]
    Archive { path: String, because: String },
    /// A name of no kind that is known.
    #[error("Invalid image name {name:?}, {because}")]
    Name {
        name: String,
        /// The text of upstream CDI.
        because: &'static str,
    },
}
