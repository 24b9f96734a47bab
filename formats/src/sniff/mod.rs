//! What bytes are, by their first few: names and suffixes never matter.

mod foreign;
mod probe;

use std::fmt;

pub use foreign::{Foreign, TAIL_BYTES, foreign_by_tail};
pub use probe::{ProbedHead, probe_head, probe_head_up_to};

use crate::tar::is_tar;
use crate::{bzip2, lz4, zstd};

/// A compression that is recognised and undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// RFC 1952, any number of members.
    Gzip,
    /// The .xz format, any number of streams and blocks.
    Xz,
    /// RFC 8878, any number of frames.
    Zstd,
    /// Any number of streams.
    Bzip2,
    /// Frames of version 1, any number of them; not the legacy ones.
    Lz4,
}

/// What an image is once nothing is compressed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageFormat {
    /// The guest's disk as it is; ISO images and everything unknown as well.
    Raw,
    /// QEMU's copy-on-write format, version 2 or 3.
    Qcow2,
    /// VMware's: a sparse extent, or a text descriptor that names extents.
    Vmdk,
    /// VirtualBox's.
    Vdi,
    /// Virtual PC's, dynamic or differencing. A fixed one is raw but for its last 512 bytes, and counts as raw.
    Vhd,
    /// Hyper-V's.
    Vhdx,
}

/// What [`sniff`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// To be undone, and what it yields examined again.
    Compressed(Compression),
    /// Nothing further to look for.
    Image(ImageFormat),
    /// Known and not decoded: to be refused unless the user has set the format to raw.
    Foreign(Foreign),
}

/// Bytes that [`sniff`] needs, if there are as many.
pub const SNIFF_BYTES: usize = 512;

/// Recognises the first bytes of a stream. Fewer than [`SNIFF_BYTES`] are fine when that is all there is: whatever
/// cannot be recognised is raw. A tar archive is raw here, since it may be an OVA: see [`foreign_tar`].
pub fn sniff(head: &[u8]) -> Sniffed {
    use {Compression::*, ImageFormat::*, Sniffed::*};
    const MAGICS: [(&[u8], Sniffed); 10] = [
        (b"\x1f\x8b", Compressed(Gzip)),
        (b"\xfd7zXZ\0", Compressed(Xz)),
        (b"\x28\xb5\x2f\xfd", Compressed(Zstd)),
        (&lz4::MAGIC, Compressed(Lz4)),
        (b"QFI\xfb", Image(Qcow2)),
        (b"KDMV", Image(Vmdk)),
        (b"COWD", Image(Vmdk)), // the sparse extents of old ESX
        (b"# Disk DescriptorFile", Image(Vmdk)),
        (b"conectix", Image(Vhd)),
        (b"vhdxfile", Image(Vhdx)),
    ];
    const VDI_SIGNATURE: (usize, &[u8]) = (0x40, b"\x7f\x10\xda\xbe");

    if let Some((_, seen)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        *seen
    } else if head.get(VDI_SIGNATURE.0..).is_some_and(|rest| rest.starts_with(VDI_SIGNATURE.1)) {
        Image(Vdi)
    } else if bzip2::block_size(head).is_some() {
        Compressed(Bzip2)
    } else if let Some(kind) = behind_skippable_frames(head) {
        Compressed(kind)
    } else if let Some(foreign) = foreign::foreign_by_head(head) {
        Foreign(foreign)
    } else {
        Image(Raw)
    }
}

/// The refusal of a tar archive that is no OVA. `None` if `head` is not the beginning of a tar archive.
pub fn foreign_tar(head: &[u8]) -> Option<Foreign> {
    is_tar(head).then_some(foreign::TAR)
}

/// pzstd puts a skippable frame first. zstd and lz4 have the same ones, so a frame of data has to be in sight.
fn behind_skippable_frames(mut head: &[u8]) -> Option<Compression> {
    loop {
        match zstd::Frame::parse(head) {
            Ok(Some(zstd::Frame::Data(_))) => return Some(Compression::Zstd),
            Ok(Some(zstd::Frame::Skippable { len })) => {
                head = usize::try_from(len).ok().and_then(|len| head.get(len..))?;
            }
            Ok(None) => return None,
            Err(_) => return head.starts_with(&lz4::MAGIC).then_some(Compression::Lz4),
        }
    }
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Gzip, Self::Xz, Self::Zstd, Self::Bzip2, Self::Lz4];

    /// How messages name a stream of it.
    pub(crate) fn stream(self) -> &'static str {
        match self {
            Self::Gzip => "gzip stream",
            Self::Xz => "xz stream",
            Self::Zstd => "zstd stream",
            Self::Bzip2 => "bzip2 stream",
            Self::Lz4 => "lz4 stream",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Lz4 => "lz4",
        })
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_decide() {
        let at = |offset: usize, magic: &[u8]| [&vec![0; offset], magic, &[0; 512]].concat();
        let table = [
            (at(0, b"\x1f\x8b\x08"), Sniffed::Compressed(Compression::Gzip)),
            (at(0, b"\xfd7zXZ\0"), Sniffed::Compressed(Compression::Xz)),
            (at(0, b"\x28\xb5\x2f\xfd"), Sniffed::Compressed(Compression::Zstd)),
            (at(0, b"BZh9"), Sniffed::Compressed(Compression::Bzip2)),
            (at(0, b"BZh0"), Sniffed::Image(ImageFormat::Raw)),
            (at(0, b"\x04\x22\x4d\x18"), Sniffed::Compressed(Compression::Lz4)),
            (at(0, b"QFI\xfb"), Sniffed::Image(ImageFormat::Qcow2)),
            (at(0, b"KDMV"), Sniffed::Image(ImageFormat::Vmdk)),
            (at(0, b"# Disk DescriptorFile\n"), Sniffed::Image(ImageFormat::Vmdk)),
            (at(0x40, b"\x7f\x10\xda\xbe"), Sniffed::Image(ImageFormat::Vdi)),
            (at(0, b"conectix"), Sniffed::Image(ImageFormat::Vhd)),
            (at(0, b"vhdxfile"), Sniffed::Image(ImageFormat::Vhdx)),
            (at(257, b"ustar"), Sniffed::Image(ImageFormat::Raw)),
            (at(1, b"QFI\xfb"), Sniffed::Image(ImageFormat::Raw)),
            (b"QFI".to_vec(), Sniffed::Image(ImageFormat::Raw)),
            (Vec::new(), Sniffed::Image(ImageFormat::Raw)),
        ];
        for (head, expected) in table {
            assert_eq!(sniff(&head), expected, "{:?}", &head[..head.len().min(16)]);
        }
    }

    #[test]
    fn skippable_frames_count_only_before_a_frame_of_data() {
        let skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd";
        let data = b"\x28\xb5\x2f\xfd\x20\0\x01\0\0";
        let zstd = Sniffed::Compressed(Compression::Zstd);
        assert_eq!(sniff(&[&skippable[..], data].concat()), zstd);
        assert_eq!(sniff(&[&skippable[..], skippable, data].concat()), zstd);
        let lz4 = [&skippable[..], b"\x04\x22\x4d\x18"].concat();
        assert_eq!(sniff(&lz4), Sniffed::Compressed(Compression::Lz4));
        assert!(matches!(sniff(skippable), Sniffed::Foreign(_)), "no raw disk begins so");
    }
}
