//! The images: one disk in every dress.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// One image of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// The disk as it is.
    Raw,
    /// One gzip member.
    RawGz,
    /// xz, one block: nothing to do in parallel.
    RawXz,
    /// xz, blocks of 12 MiB.
    RawXzBlocks,
    /// One zstd frame.
    RawZst,
    /// Clusters as they are.
    Qcow2,
    /// Clusters compressed with zlib.
    Qcow2Zlib,
    /// Clusters compressed with zstd.
    Qcow2Zstd,
    /// A qcow2 with plain clusters, in one gzip member.
    Qcow2Gz,
    /// A qcow2 with plain clusters, in one block of xz.
    Qcow2Xz,
    /// A VMDK as appliances bring it: grains compressed with zlib, its table at the end.
    Vmdk,
    /// A dynamic VHDX.
    Vhdx,
    /// A dynamic VDI.
    Vdi,
    /// The qcow2 with plain clusters, as an object in a store that speaks S3.
    S3,
    /// The same in a container disk: the gzipped layer of an image in a registry.
    Registry,
}

/// The compression of the disk or the qcow2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Nothing.
    None,
    Gzip,
    /// xz, in one block or several.
    Xz,
    Zstd,
}

impl Case {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 15] = [
        Self::Raw,
        Self::Qcow2,
        Self::Qcow2Zlib,
        Self::Qcow2Zstd,
        Self::RawGz,
        Self::RawZst,
        Self::RawXz,
        Self::RawXzBlocks,
        Self::Qcow2Gz,
        Self::Qcow2Xz,
        Self::Vmdk,
        Self::Vhdx,
        Self::Vdi,
        Self::S3,
        Self::Registry,
    ];

    /// Those that show a decoder each.
    pub const LOCAL: [Self; 9] = [
        Self::Raw,
        Self::Qcow2,
        Self::Qcow2Zlib,
        Self::Qcow2Zstd,
        Self::Vmdk,
        Self::RawGz,
        Self::RawZst,
        Self::RawXz,
        Self::RawXzBlocks,
    ];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RawGz => "raw.gz",
            Self::RawXz => "raw.xz, one block",
            Self::RawXzBlocks => "raw.xz, many blocks",
            Self::RawZst => "raw.zst",
            Self::Qcow2 => "qcow2",
            Self::Qcow2Zlib => "qcow2 -c zlib",
            Self::Qcow2Zstd => "qcow2 -c zstd",
            Self::Qcow2Gz => "qcow2.gz",
            Self::Qcow2Xz => "qcow2.xz",
            Self::Vmdk => "vmdk, streamOptimized",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
            Self::S3 => "qcow2 in S3",
            Self::Registry => "qcow2 in a registry",
        }
    }

    /// The compression that has to be undone before qemu-img can read it.
    pub fn compression(self) -> Compression {
        match self {
            Self::Raw | Self::Qcow2 | Self::Qcow2Zlib | Self::Qcow2Zstd => Compression::None,
            Self::Vmdk | Self::Vhdx | Self::Vdi | Self::S3 => Compression::None,
            Self::RawGz | Self::Qcow2Gz | Self::Registry => Compression::Gzip,
            Self::RawXz | Self::RawXzBlocks | Self::Qcow2Xz => Compression::Xz,
            Self::RawZst => Compression::Zstd,
        }
    }

    /// Whether it is made of parts that can be decompressed on their own.
    pub fn has_many_blocks(self) -> bool {
        self == Self::RawXzBlocks
    }

    /// The format below the compression, as qemu-img calls it.
    pub fn format(self) -> &'static str {
        match self {
            Self::Raw | Self::RawGz | Self::RawXz | Self::RawXzBlocks | Self::RawZst => "raw",
            Self::Vmdk => "vmdk",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
            _ => "qcow2",
        }
    }

    /// The file in the folder of the disk.
    pub fn file(self) -> &'static str {
        match self {
            Self::Raw => "disk.raw",
            Self::RawGz => "disk.raw.gz",
            Self::RawXz => "disk.raw.xz",
            Self::RawXzBlocks => "disk.blocks.raw.xz",
            Self::RawZst => "disk.raw.zst",
            Self::Qcow2 => "disk.qcow2",
            Self::Qcow2Zlib => "disk.zlib.qcow2",
            Self::Qcow2Zstd => "disk.zstd.qcow2",
            Self::Qcow2Gz => "disk.qcow2.gz",
            Self::Qcow2Xz => "disk.qcow2.xz",
            Self::Vmdk => "disk.vmdk",
            Self::Vhdx => "disk.vhdx",
            Self::Vdi => "disk.vdi",
            Self::S3 => Self::Qcow2.file(),
            Self::Registry => "disk.layer.tar.gz",
        }
    }

    /// Makes the file unless it is there, and brings it into the page cache.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn prepare(self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(self.file());
        if !path.is_file() {
            if matches!(self, Self::Qcow2Gz | Self::Qcow2Xz | Self::Registry) {
                Self::Qcow2.prepare(folder)?;
            }
            let unfinished = folder.join("image.unfinished");
            let (out, dir) = (unfinished.display().to_string(), folder.display().to_string());
            shell::script(self.recipe(), &[("OUT", &out), ("DIR", &dir)])?;
            fs::rename(&unfinished, &path)
                .with_context(|| format!("cannot name {}", path.display()))?;
        }
        let mut file = fs::File::open(&path).with_context(|| format!("cannot read {path:?}"))?;
        std::io::copy(&mut file, &mut std::io::sink())
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(path)
    }

    fn recipe(self) -> &'static str {
        match self {
            Self::Raw => "false # made with the folder",
            Self::RawGz => r#"gzip --no-name --stdout "$DIR/disk.raw" > "$OUT""#,
            Self::RawXz => r#"xz --threads=1 --stdout "$DIR/disk.raw" > "$OUT""#,
            Self::RawXzBlocks => {
                r#"xz --threads=0 --block-size=12MiB --stdout "$DIR/disk.raw" > "$OUT""#
            }
            Self::RawZst => r#"zstd --quiet --threads=0 --stdout "$DIR/disk.raw" > "$OUT""#,
            Self::Qcow2 | Self::S3 => r#"qemu-img convert -f raw -O qcow2 "$DIR/disk.raw" "$OUT""#,
            Self::Qcow2Zlib => r#"qemu-img convert -c -f raw -O qcow2 "$DIR/disk.raw" "$OUT""#,
            Self::Qcow2Zstd => {
                r#"qemu-img convert -c -f raw -O qcow2 -o compression_type=zstd "$DIR/disk.raw" "$OUT""#
            }
            Self::Qcow2Gz => r#"gzip --no-name --stdout "$DIR/disk.qcow2" > "$OUT""#,
            Self::Qcow2Xz => r#"xz --threads=1 --stdout "$DIR/disk.qcow2" > "$OUT""#,
            Self::Vmdk => {
                r#"qemu-img convert -f raw -O vmdk -o subformat=streamOptimized "$DIR/disk.raw" "$OUT""#
            }
            Self::Vhdx => r#"qemu-img convert -f raw -O vhdx "$DIR/disk.raw" "$OUT""#,
            Self::Vdi => r#"qemu-img convert -f raw -O vdi "$DIR/disk.raw" "$OUT""#,
            Self::Registry => LAYER,
        }
    }
}

/// As `docker build` creates it from a Containerfile that adds a disk: owner, mode and path are those that KubeVirt
/// requires.
const LAYER: &str = r#"
tar --create --owner=107 --group=107 --mode=0440 --mtime=@0 --directory="$DIR" \
    --transform='s,^,disk/,' disk.qcow2 | gzip --no-name > "$OUT"
"#;
