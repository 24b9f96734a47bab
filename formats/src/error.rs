//! Why bytes were refused.

use std::io;

use crate::sniff::Foreign;

/// Why bytes were refused: what is wrong, and where it was found.
///
/// Positions are in bytes: of the file that was read where images are decoded, of the compressed stream where something
/// is decompressed. Text that comes from an image is escaped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream ended in the middle of something.
    #[error("the {what} ends too early, at byte {at}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where the bytes ended.
        at: u64,
    },
    /// There is nothing in it.
    #[error("the {what} is empty")]
    Empty {
        /// What should have held something.
        what: &'static str,
    },
    /// Bytes that contradict their format, or a checksum.
    #[error("the {what} is damaged near byte {at}: {because}")]
    Corrupt {
        /// What was being read.
        what: &'static str,
        /// Where it was noticed; the damage itself lies at or before this byte.
        at: u64,
        /// What does not fit, as a clause.
        because: &'static str,
    },
    /// Something other than the end or more of the same follows a complete stream.
    #[error("the {what} is followed by other bytes, at byte {at}")]
    TrailingBytes {
        /// What was complete.
        what: &'static str,
        /// Where the other bytes begin.
        at: u64,
    },
    /// The stream can only be decoded with more memory than it is allowed.
    #[error("the {what} needs a window of {needed} bytes, allowed are {allowed}")]
    WindowTooLarge {
        /// What was being read.
        what: &'static str,
        /// Bytes of history that the decoder has to keep.
        needed: u64,
        /// The most that it may keep.
        allowed: u64,
    },
    /// A legal part of the format that this decoder does not know.
    #[error("the {what} uses {feature}, which is not supported")]
    Unsupported {
        /// What was being read.
        what: &'static str,
        /// What it uses.
        feature: &'static str,
    },
    /// The library behind the decoder could not get its memory.
    #[error("no memory to decode the {what}")]
    OutOfMemory {
        /// What was being read.
        what: &'static str,
    },
    /// The bytes available are too few to see what is compressed.
    #[error("the first {bytes} bytes of the {what} do not yield any content")]
    HeadTooShort {
        /// What was being read.
        what: &'static str,
        /// How many bytes were available.
        bytes: usize,
    },

    /// A known format that is not decoded. Written unchanged it would be no disk that a guest can use.
    #[error(
        "the image is {}, which is not supported: {}, or set the source format to raw to store it unchanged", .0.name,
        .0.advice
    )]
    Foreign(Foreign),

    /// The bytes do not begin as this format does.
    #[error("this is not a {format} image")]
    NotThisFormat {
        /// What was expected.
        format: &'static str,
    },
    /// A version of the format that is not read.
    #[error("{format} version {version} is not supported")]
    UnsupportedVersion {
        /// The format.
        format: &'static str,
        /// From the header.
        version: u32,
    },
    /// The header's length is outside the header's cluster, or shorter than its version allows.
    #[error("a header of {length} bytes is impossible")]
    HeaderLength {
        /// From the header.
        length: u32,
    },
    /// A header extension runs out of the header's cluster.
    #[error("the header extension at byte {at} is truncated")]
    ExtensionTruncated {
        /// Where the extension begins.
        at: u64,
    },

    /// The image is a difference to another file, which is never opened.
    #[error("the image is invalid because it has invalid backing file {name}")]
    BackingFile {
        /// The other file.
        name: String,
    },
    /// The image is a difference to another image, which is never opened.
    #[error("the {format} image is a difference to another image, which is never opened")]
    Parent {
        /// The format.
        format: &'static str,
    },
    /// A vmdk descriptor, or one that is part of an image, names other files, which are never opened.
    #[error("the vmdk ({kind}) keeps its data in other files, which are never opened: {name}")]
    OtherExtents {
        /// What the descriptor calls this kind of image.
        kind: String,
        /// The first of the other files, or what there is of it.
        name: String,
    },
    /// Changes that are written down, but were not carried out.
    #[error(
        "the {format} image was not closed: changes in its log have to be written back first, by opening it with the \
         program that wrote it"
    )]
    OpenLog {
        /// The format.
        format: &'static str,
    },
    /// The image is a difference to something else than what the target holds.
    #[error("the image holds the changes since {name}, and not since {expected}")]
    OtherBacking {
        /// The other file.
        name: String,
        /// What it should be.
        expected: String,
    },
    /// The image keeps its data in another file, which is never opened.
    #[error("the image is invalid because it has an external data file")]
    DataFile,
    /// The image is encrypted.
    #[error("the image is encrypted ({method})")]
    Encrypted {
        /// How.
        method: String,
    },
    /// The image needs features that are not known here.
    #[error("the image needs unsupported features: {names}")]
    UnknownFeatures {
        /// Names from the image's own table, or bit numbers.
        names: String,
    },
    /// A writer found the image broken and marked it so.
    #[error("the image is marked as corrupt")]
    MarkedCorrupt,
    /// Clusters are compressed in a way that is not known here.
    #[error("compression type {kind} is not supported")]
    UnknownCompression {
        /// From the header.
        kind: u8,
    },
    /// The header names a compression type, and its feature bits another.
    #[error("the compression type {kind} contradicts the feature bits")]
    CompressionFlag {
        /// From the header.
        kind: u8,
    },

    /// A cluster size outside what the format allows.
    #[error("a cluster size of 2^{bits} bytes is not supported, only 2^9 to 2^21")]
    ClusterSize {
        /// Its logarithm.
        bits: u32,
    },
    /// Clusters too small to have subclusters.
    #[error("clusters of 2^{bits} bytes are too small for extended L2 entries, which need 2^14")]
    SubclusterSize {
        /// The logarithm of the cluster size.
        bits: u32,
    },
    /// A number that its place in the format does not allow.
    #[error("{what} {value} at byte {at} is not supported")]
    Field {
        /// What it is.
        what: &'static str,
        /// Where it is.
        at: u64,
        /// The number.
        value: u64,
    },
    /// Something that no image is without.
    #[error("the {what} has no {part}")]
    Missing {
        /// Where it should be.
        what: &'static str,
        /// What is not there.
        part: &'static str,
    },
    /// A table that cannot map the whole disk.
    #[error("the {what} is too small: {entries} entries, where the disk needs {needed}")]
    MapTooSmall {
        /// What it is.
        what: &'static str,
        /// How long it is.
        entries: u64,
        /// What the virtual size needs.
        needed: u64,
    },
    /// A virtual size no disk has.
    #[error("a virtual size of {size} bytes is impossible")]
    VirtualSize {
        /// From the header.
        size: u64,
    },
    /// The first-level table is longer than 32 MiB.
    #[error("L1 size too big: {entries} entries, where {max} are allowed")]
    L1TooBig {
        /// From the header.
        entries: u64,
        /// The limit.
        max: u64,
    },
    /// The first-level table cannot map the whole disk.
    #[error("L1 table is too small: {entries} entries, where the disk needs {needed}")]
    L1TooSmall {
        /// From the header.
        entries: u64,
        /// What the virtual size needs.
        needed: u64,
    },
    /// A reference count wider than 64 bits.
    #[error("reference counts of 2^{order} bits are not supported")]
    RefcountWidth {
        /// The logarithm of the width.
        order: u32,
    },
    /// Upstream CDI count table is absent, or longer than 8 MiB.
    #[error("a reference count table of {clusters} clusters is impossible")]
    RefcountTableSize {
        /// From the header.
        clusters: u32,
    },

    /// Something does not begin where its kind has to begin.
    #[error("the {what} begins at byte {at}, which is not the beginning of a cluster")]
    Unaligned {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        at: u64,
    },
    /// Something lies behind the end of the file: the image is cut short, or its tables are wrong.
    #[error("the {what} at byte {at} lies outside the file, which has {file_len} bytes")]
    OutsideFile {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        at: u64,
        /// How long the file is.
        file_len: u64,
    },
    /// Two things in the same place.
    #[error("the {what} at byte {at} overlaps the {with}")]
    Overlap {
        /// What was being examined.
        what: &'static str,
        /// Where it begins.
        at: u64,
        /// What is there already.
        with: &'static str,
    },
    /// Bits are set that have to be zero.
    #[error("the {what} at byte {at} has reserved bits set: {entry:#018x}")]
    ReservedBits {
        /// What it is.
        what: &'static str,
        /// Where it is.
        at: u64,
        /// All of it.
        entry: u64,
    },
    /// A subcluster is both allocated and zero, or allocated in a cluster that is not.
    #[error("the L2 entry at byte {at} contradicts itself: subclusters {bitmap:#018x}")]
    Subclusters {
        /// Where the entry is.
        at: u64,
        /// Zero flags in the upper, allocation flags in the lower half.
        bitmap: u64,
    },
}

/// How a decoder that is read through [`io::Read`] reports: get the [`Error`] back with [`io::Error::downcast`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::OutOfMemory { .. } => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
