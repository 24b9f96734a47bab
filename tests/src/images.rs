//! One disk in every format: the image and the expected disk.

use std::sync::OnceLock;

use testkit::{
    BlockOptions, Compressor, Fill, KIB, MIB, Pieces, Qcow2Options, QemuImg, SparseDisk, compress,
    ova,
};

/// An image and the disk in it.
#[derive(Debug)]
pub struct Wire {
    /// `raw.xz, many blocks`.
    pub name: &'static str,
    /// What a report calls it: compressions from the outside, then the format.
    pub layers: &'static [&'static str],
    /// As they travel.
    pub bytes: Vec<u8>,
    /// As a guest sees it.
    pub disk: Vec<u8>,
}

/// A mixed disk of 12 MiB as raw, as ISO, and in each format that an installed tool creates. A format whose tool is
/// missing is left out with a message. Created once.
pub fn wires() -> &'static [Wire] {
    static WIRES: OnceLock<Vec<Wire>> = OnceLock::new();
    WIRES.get_or_init(|| {
        let disk = SparseDisk::mixed(12 * MIB, 2026);
        let raw = disk.bytes();
        let mut wires = Vec::new();
        let mut add = |name, layers, bytes: Option<Vec<u8>>| {
            wires.extend(bytes.map(|bytes| Wire { name, layers, bytes, disk: raw.clone() }));
        };
        let packed = |how, bytes: &[u8]| compress(how, bytes);
        add("raw", &["raw"], Some(raw.clone()));
        add("raw.gz", &["gzip", "raw"], packed(Compressor::GZIP, &raw));
        let members = Compressor::GZIP.pieces(Pieces::Concatenated(5));
        add("raw.gz, members", &["gzip", "raw"], packed(members, &raw));
        add("raw.gz by pigz", &["gzip", "raw"], packed(Compressor::PIGZ, &raw));
        add("raw.xz, one block", &["xz", "raw"], packed(Compressor::XZ, &raw));
        add("raw.xz, many blocks", &["xz", "raw"], packed(Compressor::XZ_BLOCKS, &raw));
        let streams = Compressor::XZ.pieces(Pieces::Padded(3));
        add("raw.xz, streams", &["xz", "raw"], packed(streams, &raw));
        add("raw.zst", &["zstd", "raw"], packed(Compressor::ZSTD, &raw));
        let frames = Compressor::ZSTD.pieces(Pieces::Padded(4));
        add("raw.zst, frames", &["zstd", "raw"], packed(frames, &raw));
        add("raw.bz2", &["bzip2", "raw"], packed(Compressor::BZIP2, &raw));
        let streams = Compressor::BZIP2.pieces(Pieces::Concatenated(3));
        add("raw.bz2, streams", &["bzip2", "raw"], packed(streams, &raw));
        add("raw.lz4", &["lz4", "raw"], packed(Compressor::LZ4, &raw));
        let frames = Compressor::LZ4.pieces(Pieces::Padded(3));
        add("raw.lz4, frames", &["lz4", "raw"], packed(frames, &raw));
        let nested =
            packed(Compressor::XZ, &raw).and_then(|inner| packed(Compressor::GZIP, &inner));
        add("raw.xz.gz", &["gzip", "xz", "raw"], nested);

        let qcow2 = |how: Qcow2Options| Some(QemuImg::require()?.qcow2(&disk, &how).bytes());
        let plain = Qcow2Options::default;
        add("qcow2", &["qcow2"], qcow2(plain()));
        let zlib = || Qcow2Options { compressed: true, ..plain() };
        add("qcow2 -c", &["qcow2"], qcow2(zlib()));
        add("qcow2 -c zstd", &["qcow2"], qcow2(Qcow2Options { zstd: true, ..zlib() }));
        let small = Qcow2Options { cluster_bits: 9, version_2: true, ..plain() };
        add("qcow2, small clusters", &["qcow2"], qcow2(small));
        let inner = qcow2(plain()).unwrap_or_default();
        if !inner.is_empty() {
            add("qcow2.gz", &["gzip", "qcow2"], packed(Compressor::GZIP, &inner));
            add("qcow2.xz", &["xz", "qcow2"], packed(Compressor::XZ, &inner));
            add("qcow2.bz2", &["bzip2", "qcow2"], packed(Compressor::BZIP2, &inner));
            add("qcow2.lz4", &["lz4", "qcow2"], packed(Compressor::LZ4, &inner));
            add("qcow2.zst", &["zstd", "qcow2"], packed(Compressor::ZSTD, &inner));
        }
        let blocks = |format, options: &str| {
            Some(QemuImg::require()?.blocks(&disk, &BlockOptions::new(format, options)).bytes())
        };
        let vmdk = blocks("vmdk", "subformat=streamOptimized");
        let in_ova = vmdk.as_ref().and_then(|disk| ova(&[("disk.vmdk", disk), ("cd.iso", b"cd")]));
        add("vmdk, stream", &["vmdk"], vmdk);
        add("vmdk in ova", &["vmdk in ova"], in_ova);
        add("vmdk, sparse", &["vmdk"], blocks("vmdk", "subformat=monolithicSparse"));
        add("vdi", &["vdi"], blocks("vdi", "static=off"));
        add("vhd", &["vhd"], blocks("vpc", "force_size=on"));
        let vhdx = blocks("vhdx", "block_size=1M");
        add(
            "vhdx.gz",
            &["gzip", "vhdx"],
            vhdx.as_ref().and_then(|vhdx| packed(Compressor::GZIP, vhdx)),
        );
        add("vhdx", &["vhdx"], vhdx);
        wires.push(iso());
        wires
    })
}

/// Something with the descriptors of ISO 9660 where they belong, and a length that is no whole MiB.
fn iso() -> Wire {
    let descriptor = 32 * KIB; // ECMA-119, 6.2.1: sixteen sectors of 2 KiB are left to the system
    let mut disk = SparseDisk::new(3 * MIB + 6 * KIB)
        .with(descriptor, 2 * KIB, Fill::Text(9660))
        .with(MIB, MIB, Fill::Random(9660))
        .bytes();
    disk[descriptor as usize..][..7].copy_from_slice(b"\x01CD001\x01");
    Wire { name: "iso", layers: &["raw"], bytes: disk.clone(), disk }
}
