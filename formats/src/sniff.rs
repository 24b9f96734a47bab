//! What bytes are, by their first few: names and suffixes never matter.

mod look;

use std::fmt;

pub use look::{Look, look_further, look_through};

use crate::zstd::Frame;

/// A compression that is recognised and undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compression {
    /// RFC 1952, any number of members.
    Gzip,
    /// The .xz format, any number of streams and blocks.
    Xz,
    /// RFC 8878, any number of frames.
    Zstd,
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
    /// To be undone, and what it yields looked at again.
    Compressed(Compression),
    /// Nothing further to look for.
    Image(ImageFormat),
}

/// Bytes that [`sniff`] wants to see, where there are as many.
pub const SNIFF_BYTES: usize = 512;

/// Recognises the first bytes of a stream. Fewer than [`SNIFF_BYTES`] are fine when that is all there is: whatever
/// cannot be recognised is raw.
pub fn sniff(head: &[u8]) -> Sniffed {
    use {Compression::*, ImageFormat::*, Sniffed::*};
    const MAGICS: [(&[u8], Sniffed); 9] = [
        (b"\x1f\x8b", Compressed(Gzip)),
        (b"\xfd7zXZ\0", Compressed(Xz)),
        (b"\x28\xb5\x2f\xfd", Compressed(Zstd)),
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
    } else if begins_with_skippable_frames(head) {
        Compressed(Zstd)
    } else {
        Image(Raw)
    }
}

/// pzstd puts a skippable frame first. Other formats have such frames too (lz4), so a frame of data has to be in sight.
fn begins_with_skippable_frames(mut head: &[u8]) -> bool {
    loop {
        match Frame::parse(head) {
            Ok(Some(Frame::Data(_))) => return true,
            Ok(Some(Frame::Skippable { len })) => {
                let Some(rest) = usize::try_from(len).ok().and_then(|len| head.get(len..)) else {
                    return false;
                };
                head = rest;
            }
            Ok(None) | Err(_) => return false,
        }
    }
}

impl Compression {
    /// How messages name a stream of it.
    pub(crate) fn stream(self) -> &'static str {
        match self {
            Self::Gzip => "gzip stream",
            Self::Xz => "xz stream",
            Self::Zstd => "zstd stream",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
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
        assert_eq!(sniff(skippable), Sniffed::Image(ImageFormat::Raw));
        let lz4 = [&skippable[..], b"\x04\x22\x4d\x18"].concat();
        assert_eq!(sniff(&lz4), Sniffed::Image(ImageFormat::Raw));
    }
}
