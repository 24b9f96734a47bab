//! The rows: the content of an image, and its compression.

use testkit::{
    BlockOptions, Compressor, Fill, KIB, MIB, Qcow2Options, QemuImg, SparseDisk, compress, ova,
};

/// The content of an image.
pub struct Format {
    pub name: &'static str,
    /// The image of a disk; `None` where the oracle is missing.
    make: fn(&SparseDisk) -> Option<Vec<u8>>,
    /// Words of the refusal; `None`: it becomes the disk.
    pub refused: Option<&'static str>,
}

pub const FORMATS: &[Format] = &[
    Format { name: "raw", make: |disk| Some(disk.bytes()), refused: None },
    Format { name: ISO, make: |disk| Some(iso(disk)), refused: None },
    Format {
        name: "qcow2",
        make: |disk| Some(QemuImg::require()?.qcow2(disk, &Qcow2Options::default()).bytes()),
        refused: None,
    },
    Format {
        name: "qcow2, compressed clusters",
        make: |disk| {
            let how = Qcow2Options { compressed: true, ..Qcow2Options::default() };
            Some(QemuImg::require()?.qcow2(disk, &how).bytes())
        },
        refused: None,
    },
    Format {
        name: "vmdk, sparse",
        make: |disk| blocks(disk, "vmdk", "subformat=monolithicSparse"),
        refused: None,
    },
    Format {
        name: "vmdk, streamOptimized",
        make: |disk| blocks(disk, "vmdk", STREAM),
        refused: None,
    },
    Format {
        name: "vhd, dynamic",
        make: |disk| blocks(disk, "vpc", "force_size=on"),
        refused: None,
    },
    Format {
        name: "vhd, fixed",
        make: |disk| blocks(disk, "vpc", "subformat=fixed,force_size=on"),
        refused: None,
    },
    Format {
        name: "vhdx, dynamic",
        make: |disk| blocks(disk, "vhdx", "block_size=1M"),
        refused: None,
    },
    Format {
        name: "vhdx, fixed",
        make: |disk| blocks(disk, "vhdx", "subformat=fixed,block_size=1M"),
        refused: None,
    },
    Format { name: "vdi, dynamic", make: |disk| blocks(disk, "vdi", "static=off"), refused: None },
    Format { name: "vdi, fixed", make: |disk| blocks(disk, "vdi", "static=on"), refused: None },
    Format {
        name: OVA,
        make: |disk| ova(&[("disk.vmdk", &blocks(disk, "vmdk", STREAM)?), ("cd.iso", b"cd")]),
        refused: None,
    },
    Format {
        name: "qcow2 with a backing file",
        make: |disk| {
            let mut image = QemuImg::require()?.qcow2(disk, &Qcow2Options::default()).bytes();
            let name = b"/etc/passwd";
            let at = 4096; // behind all header extensions, in the first cluster
            image[at..at + name.len()].copy_from_slice(name);
            image[8..16].copy_from_slice(&(at as u64).to_be_bytes());
            image[16..20].copy_from_slice(&(name.len() as u32).to_be_bytes());
            Some(image)
        },
        refused: Some("invalid because it has invalid backing file"),
    },
    Format {
        name: "vmdk, only a descriptor",
        make: |_| {
            let text = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\n\
                        createType=\"monolithicFlat\"\nRW 2048 FLAT \"/etc/passwd\" 0\n";
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(1024, b'\n');
            Some(bytes)
        },
        refused: Some("keeps its data in other files, which are never opened"),
    },
    Format {
        name: "zip archive, and what else is known and not read",
        make: |disk| Some([b"PK\x03\x04", &disk.bytes()[..]].concat()),
        refused: Some("the image is a zip archive, which is not supported: extract"),
    },
    Format {
        name: "tar archive without a machine",
        make: |disk| testkit::tar(&[("disk.img", &disk.bytes())]),
        refused: Some("the image is a tar archive, which is not supported: extract"),
    },
];

const ISO: &str = "ISO 9660";
const OVA: &str = "OVA (vmdk inside)";
const STREAM: &str = "subformat=streamOptimized";

pub const COMPRESSIONS: &[(&str, Option<Compressor>)] = &[
    ("none", None),
    ("gzip", Some(Compressor::GZIP)),
    ("xz", Some(Compressor::XZ)),
    ("zstd", Some(Compressor::ZSTD)),
    ("bzip2", Some(Compressor::BZIP2)),
    ("lz4", Some(Compressor::LZ4)),
];

/// An image, and the disk in it.
pub struct Wire {
    pub format: &'static Format,
    pub compression: &'static str,
    pub bytes: Vec<u8>,
    pub disk: Vec<u8>,
}

impl Wire {
    /// Part of the error message, which is the same for each source.
    pub fn refused(&self) -> Option<&'static str> {
        let in_a_stream = self.format.name == OVA && self.compression != "none";
        let because = "an OVA in a compressed stream (decompress it first)";
        if in_a_stream { Some(because) } else { self.format.refused }
    }
}

/// All images, or `None`, with a message, if an oracle is missing: the table would have holes.
pub fn wires() -> Option<Vec<Wire>> {
    let disk = SparseDisk::mixed(4 * MIB, 3);
    let mut wires = Vec::new();
    for format in FORMATS {
        let image = (format.make)(&disk)?;
        let disk = if format.name == ISO { image.clone() } else { disk.bytes() };
        for (compression, how) in COMPRESSIONS {
            let bytes = match how {
                None => image.clone(),
                Some(how) => compress(*how, &image)?,
            };
            wires.push(Wire { format, compression, bytes, disk: disk.clone() });
        }
    }
    Some(wires)
}

fn blocks(disk: &SparseDisk, format: &'static str, options: &str) -> Option<Vec<u8>> {
    Some(QemuImg::require()?.blocks(disk, &BlockOptions::new(format, options)).bytes())
}

/// A disk with the descriptors of ISO 9660 where they belong (ECMA-119, 6.2.1), and a length that is no whole MiB.
fn iso(disk: &SparseDisk) -> Vec<u8> {
    let descriptor = 32 * KIB;
    let longer = SparseDisk::new(disk.len() + 6 * KIB);
    let mut bytes = longer.with(descriptor, 2 * KIB, Fill::Text(1)).bytes();
    bytes[MIB as usize..disk.len() as usize].copy_from_slice(&disk.bytes()[MIB as usize..]);
    bytes[descriptor as usize..][..7].copy_from_slice(b"\x01CD001\x01");
    bytes
}
