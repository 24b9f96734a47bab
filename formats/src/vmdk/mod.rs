//! VMDK, in one file: `monolithicSparse`, and `streamOptimized` as in OVA archives.
//!
//! ```text
//!  sparse:  │ header │ descriptor │ directory and tables, twice │ grain │ grain │ …
//!  stream:  │ header │ descriptor │ marker, grain │ marker, grain │ … │ marker, table │ … │ marker, directory │ footer │ end │
//! ```
//!
//! Source of the layout: VMware's "Virtual Disk Format 5.0", and what `qemu-img` reads. A grain is a cluster, the
//! directory the root of [`index`](crate::index). In a stream each grain is compressed and contains its guest address.
//!
//! A text descriptor that stands alone names other files, and is refused, as is an image that is only a part of a disk.

mod descriptor;
pub(crate) mod header;

use std::sync::Arc;

use crate::Error;
use crate::blocks::{Blocks, Numbers, Places, SECTOR, apart, check_virtual_size};
use crate::image::{KnownBytes, Stop};
use crate::index::{Layout, Names};
pub(crate) use header::Header;

const NAMES: Names = Names {
    root: "grain directory",
    table: "grain table",
    other_table: "another grain table",
    cluster: "grain",
    compressed: "compressed grain",
};

/// The header's place and length.
pub(crate) const HEADER_LEN: u64 = 512;
/// Tables of a disk of 128 TiB with grains of 64 KiB.
const TABLES_MAX: u64 = 4 << 20;
/// Of all text descriptors; ordinary ones have 10 KiB.
const DESCRIPTOR_MAX: u64 = 64 << 10;

/// Where to look in a file that can be read in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Markers {
    /// Where the first of them is.
    pub(crate) start: u64,
    /// The directory, where it stands before them. Otherwise it is behind the grains.
    pub(crate) directory: Option<u64>,
    /// Entries of a table.
    pub(crate) per_table: u64,
}

/// Reads and checks the header, the descriptor, and the footer if it is there that the directory is named.
pub(crate) fn open(known: &KnownBytes) -> Result<Arc<dyn Layout>, Stop> {
    if known.head().starts_with(b"# Disk DescriptorFile") {
        let text = &known.head()[..known.head().len().min(DESCRIPTOR_MAX as usize)];
        return Err(descriptor::refuse_alone(text).into());
    }
    if known.head().starts_with(b"COWD") {
        let feature = "the sparse format of old ESX hosts";
        return Err(Error::Unsupported { what: "vmdk", feature }.into());
    }
    let first = Header::parse(known.bytes(0..HEADER_LEN, "vmdk header")?, 0)?;
    let Some(descriptor) = first.descriptor.clone() else {
        let (kind, name) = ("an extent without a descriptor".into(), "the other parts".into());
        return Err(Error::OtherExtents { kind, name }.into());
    };
    if descriptor.end - descriptor.start > DESCRIPTOR_MAX {
        let value = descriptor.end - descriptor.start;
        return Err(Error::Field { what: "descriptor length", at: 36, value }.into());
    }
    descriptor::check(known.bytes(descriptor.clone(), "vmdk descriptor")?)?;
    let directory = match (first.directory, known.file_len()) {
        (Some(directory), _) => Some(directory),
        (None, Some(file_len)) if known.is_seekable() => Some(footer(known, &first, file_len)?),
        (None, _) => None,
    };
    check_virtual_size(first.capacity)?;
    let tables = first.capacity.div_ceil(first.grain * first.per_table);
    if tables > TABLES_MAX {
        return Err(Error::VirtualSize { size: first.capacity }.into());
    }
    if first.compressed && first.overhead < HEADER_LEN {
        let (what, value) = ("first grain offset", first.overhead);
        return Err(Error::Field { what, at: 64, value }.into());
    }
    let markers = first.compressed.then_some(Markers {
        start: first.overhead,
        directory: first.directory,
        per_table: first.per_table,
    });
    let image = Blocks {
        names: &NAMES,
        virtual_size: first.capacity,
        file_len: known.file_len(),
        block_size: first.grain,
        head_len: HEADER_LEN,
        per_table: first.per_table,
        // Without a directory the image is read in one pass, by its markers.
        tables: Places::Directory { at: directory.unwrap_or(HEADER_LEN) },
        numbers: Numbers::Vmdk { one_is_zero: first.one_is_zero, compressed: first.compressed },
        metadata: apart(vec![(descriptor, "descriptor")])?,
        markers,
    };
    if directory.is_some() {
        let root = image.root_range();
        image.check_within_file(NAMES.root, &root)?;
        let over = |(range, _): &&(std::ops::Range<u64>, &str)| {
            root.start < range.end && range.start < root.end
        };
        if root.start < HEADER_LEN {
            return Err(Error::Overlap { what: NAMES.root, at: root.start, with: "header" }.into());
        }
        if let Some((_, with)) = image.metadata.iter().find(over) {
            return Err(Error::Overlap { what: NAMES.root, at: root.start, with }.into());
        }
    }
    Ok(Arc::new(image))
}

/// The offset of the directory, from the footer: the last sector but one.
fn footer(known: &KnownBytes, first: &Header, file_len: u64) -> Result<u64, Stop> {
    const WHAT: &str = "vmdk footer";
    let at = file_len.saturating_sub(3 * SECTOR);
    let sectors = known.bytes(at..at + 3 * SECTOR, WHAT)?;
    let (marker, rest) = sectors.split_at(SECTOR as usize);
    let (header, end) = rest.split_at(SECTOR as usize);
    let is_footer = header::marker(marker) == (1, 0, header::FOOTER)
        && header::marker(end) == (0, 0, header::END);
    if !is_footer {
        let because = "it does not end with a footer";
        return Err(Error::Corrupt { what: "vmdk", at, because }.into());
    }
    let last = Header::parse(header, at + SECTOR)?;
    Ok(first.directory_by(&last, at + SECTOR)?)
}
