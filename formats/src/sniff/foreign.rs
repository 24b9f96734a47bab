//! Formats that are detected and not decoded. They are refused by name, because stored as a raw disk they would be a disk that
//! no guest can use.
//!
//! A signature has at least four bytes at offset 0. Shorter ones count only if the fields behind them are valid too: a boot
//! sector must never be mistaken for an archive.

use crate::lz4;

/// A format that is not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Foreign {
    /// With its article: `a zip archive`.
    pub name: &'static str,
    /// What to do instead, as an imperative clause.
    pub advice: &'static str,
}

const DECOMPRESS: &str = "decompress it first";
const EXTRACT: &str = "extract the disk image from it first";
const CONVERT: &str = "convert it first (qemu-img convert -O qcow2)";
const RESTORE: &str = "restore it to a disk with the program that made it first";

const fn foreign(name: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, advice }
}

/// Signatures at offset 0.
const MAGICS: &[(&[u8], Foreign)] = &[
    // Compressed streams.
    (b"\x89LZO\0\r\n\x1a\n", foreign("an lzop stream", DECOMPRESS)),
    (&lz4::LEGACY_MAGIC, foreign("a legacy lz4 stream", DECOMPRESS)),
    (b"LRZI", foreign("an lrzip stream", DECOMPRESS)),
    (b"\xff\x06\0\0sNaPpY", foreign("a snappy stream", DECOMPRESS)),
    (b"\x22\xb5\x2f\xfd", OLD_ZSTD),
    (b"\x23\xb5\x2f\xfd", OLD_ZSTD),
    (b"\x24\xb5\x2f\xfd", OLD_ZSTD),
    (b"\x25\xb5\x2f\xfd", OLD_ZSTD),
    (b"\x26\xb5\x2f\xfd", OLD_ZSTD),
    (b"\x27\xb5\x2f\xfd", OLD_ZSTD),
    // Archives.
    (b"PK\x03\x04", foreign("a zip archive", EXTRACT)),
    (b"PK\x05\x06", foreign("an empty zip archive", EXTRACT)),
    (b"PK\x07\x08", foreign("a part of a zip archive", EXTRACT)),
    (b"7z\xbc\xaf\x27\x1c", foreign("a 7z archive", EXTRACT)),
    (b"Rar!\x1a\x07", foreign("a rar archive", EXTRACT)),
    (b"MSCF\0\0\0\0", foreign("a cab archive", EXTRACT)),
    (b"xar!", foreign("a xar archive", EXTRACT)),
    (b"!<arch>\n", foreign("an ar archive or deb package", EXTRACT)),
    (b"\xed\xab\xee\xdb", foreign("an rpm package", EXTRACT)),
    (b"070701", foreign("a cpio archive", EXTRACT)),
    (b"070702", foreign("a cpio archive", EXTRACT)),
    (b"070707", foreign("a cpio archive", EXTRACT)),
    (b"MSWIM\0\0\0", foreign("a WIM archive", EXTRACT)),
    (b"WLPWM\0\0\0", foreign("a WIM archive", EXTRACT)),
    // Disk images.
    (b"QED\0", foreign("a qed image", CONVERT)),
    (b"WithoutFreeSpace", foreign("a parallels image", CONVERT)),
    (b"WithouFreSpacExt", foreign("a parallels image", CONVERT)),
    (b"Bochs Virtual HD Image", foreign("a bochs image", CONVERT)),
    (b"#!/bin/sh\n#V2.0 Format\nmodprobe cloop", foreign("a cloop image", CONVERT)),
    (b"encrcdsa", foreign("an encrypted dmg image", "decrypt and convert it first (hdiutil)")),
    (b"\xbe\xba\xfe\xca\0\0\0\0", foreign("a vmdk image of the kind SE sparse", CONVERT)),
    (b"\x3a\xff\x26\xed", foreign("an Android sparse image", "convert it first (simg2img)")),
    (b"EVF\x09\x0d\x0a\xff\0", foreign("an EWF (EnCase) image", "convert it first (ewfexport)")),
    // Read-only file systems, usually the container of a disk image.
    (b"hsqs", foreign("a squashfs file system", EXTRACT)),
    (b"sqsh", foreign("a squashfs file system", EXTRACT)),
    // Backups of disks and partitions.
    (b"partclone-image", foreign("a partclone image", RESTORE)),
    (b"\0ntfsclone-image", foreign("an ntfsclone image", RESTORE)),
    (b"PaRtImAgE-VoLuMe", foreign("a partimage image", RESTORE)),
    (b"VMA\0", foreign("a Proxmox VMA backup", RESTORE)),
    (b"FsArCh", foreign("an fsarchiver archive", RESTORE)),
];

const OLD_ZSTD: Foreign = foreign("a zstd stream of a version before 0.8", DECOMPRESS);
const LZMA: Foreign = foreign("an lzma stream", DECOMPRESS);
const LZIP: Foreign = foreign("an lzip stream", DECOMPRESS);
const COMPRESS: Foreign = foreign("a stream of compress (.Z)", DECOMPRESS);
const SKIPPABLE: Foreign =
    foreign("a stream of zstd or lz4 that begins with a large frame without data", DECOMPRESS);
const DMG: Foreign = foreign("a dmg image", CONVERT);
pub(super) const TAR: Foreign = foreign("a tar archive", EXTRACT);

/// The format of a stream that begins with `head`, if it is one of these.
pub(super) fn foreign_by_head(head: &[u8]) -> Option<Foreign> {
    let by_magic = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
    by_magic.map(|(_, foreign)| *foreign).or_else(|| by_fields(head))
}

/// Formats with short signatures, detected together with the fields behind them.
fn by_fields(head: &[u8]) -> Option<Foreign> {
    match head {
        [b'L', b'Z', b'I', b'P', 0 | 1, ..] => Some(LZIP),
        // The flag for resets, no reserved bits, and codes of 9 to 16 bits.
        [0x1f, 0x9d, flags, ..] if flags & 0xe0 == 0x80 && (9..=16).contains(&(flags & 0x1f)) => {
            Some(COMPRESS)
        }
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(SKIPPABLE),
        _ if is_lzma(head) => Some(LZMA),
        _ => None,
    }
}

/// The header has no signature: the default properties byte, the dictionary size, the content size (all ones if unknown), and
/// the first byte of the range coder, which is always 0.
fn is_lzma(head: &[u8]) -> bool {
    const PROPERTIES: u8 = 0x5d;
    let Some((header, rest)) = head.split_first_chunk::<13>() else { return false };
    let [properties, d0, d1, d2, d3, size @ ..] = *header;
    let dictionary = u32::from_le_bytes([d0, d1, d2, d3]);
    // 2^n, or 2^n + 2^(n-1), as lzma and xz write them.
    let is_usual = |size: u32| {
        size.is_power_of_two() || (size.is_multiple_of(3) && (size / 3).is_power_of_two())
    };
    let size = u64::from_le_bytes(size);
    properties == PROPERTIES
        && dictionary >= 1 << 12
        && is_usual(dictionary)
        && (size == u64::MAX || size < 1 << 48)
        && rest.first() == Some(&0)
}

/// Bytes at the end of a disk that [`foreign_by_tail`] examines.
pub const TAIL_BYTES: usize = 512;

/// The format of an apparently raw disk that ends with `tail`, its last [`TAIL_BYTES`] bytes. A dmg image has its header there.
pub fn foreign_by_tail(tail: &[u8]) -> Option<Foreign> {
    // Signature, version 4, header of 512 bytes.
    tail.starts_with(b"koly\0\0\0\x04\0\0\x02\0").then_some(DMG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(head: &[u8]) -> Vec<u8> {
        [head, &[0; 600]].concat()
    }

    #[test]
    fn every_signature_is_named() {
        for (magic, expected) in MAGICS {
            let found = foreign_by_head(&padded(magic)).unwrap();
            assert_eq!(found.name, expected.name, "{}", magic.escape_ascii());
            assert!(magic.len() >= 4, "{}: too short to be sure", expected.name);
            assert_eq!(foreign_by_head(&magic[..3]), None, "{}: not whole", expected.name);
        }
        let table: [(&[u8], Foreign); 5] = [
            (b"LZIP\x01\x16", LZIP),
            (b"\x1f\x9d\x90", COMPRESS),
            (b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0", LZMA),
            (b"\x5d\0\0\x01\0\0\0\x10\0\0\0\0\0\0", LZMA),
            (b"\x50\x2a\x4d\x18\xff\xff\xff\xff", SKIPPABLE),
        ];
        for (head, expected) in table {
            assert_eq!(foreign_by_head(&padded(head)), Some(expected), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn disks_match_no_foreign_signature() {
        let table: [(&str, &[u8]); 11] = [
            ("nothing", b""),
            ("zeroes", &[0; 512]),
            (
                "a boot sector of GRUB",
                b"\xeb\x63\x90\x10\x8e\xd0\xbc\0\xb0\xb8\0\0\x8e\xd8\x8e\xc0",
            ),
            ("a boot sector of Windows", b"\x33\xc0\x8e\xd0\xbc\0\x7c\x8e\xc0\x8e\xd8\xbe\0\x7c"),
            ("a boot sector that pops", b"\x5d\x1f\x9d\x50\0\0\0\0\0\0\0\0\0\0\0\0"),
            ("a boot sector that pops DS and flags", b"\x1f\x9d\xfa\xfc"),
            ("LUKS, which a guest may have written", b"LUKS\xba\xbe\0\x02"),
            ("NTFS", b"\xeb\x52\x90NTFS    \0\x02\x08"),
            ("FAT", b"\xeb\x3c\x90mkfs.fat"),
            ("XFS", b"XFSB\0\0\x10\0"),
            ("a shell script", b"#!/bin/sh\necho"),
        ];
        for (case, head) in table {
            assert_eq!(foreign_by_head(&padded(head)), None, "{case}");
        }
    }

    #[test]
    fn dmg_is_detected_by_its_trailer() {
        let mut tail = vec![0; TAIL_BYTES];
        assert_eq!(foreign_by_tail(&tail), None);
        tail[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
        assert_eq!(foreign_by_tail(&tail), Some(DMG));
        tail[7] = 5;
        assert_eq!(foreign_by_tail(&tail), None);
    }
}
