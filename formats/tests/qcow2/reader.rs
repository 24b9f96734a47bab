//! A whole image in memory becomes a whole disk in memory, by ranges.

use std::sync::Arc;

use formats::Error;
use formats::cluster::Codec;
use formats::image::{KnownBytes, Opened, open};
use formats::index::{Layout, PieceKind, Tables};
use formats::sniff::{ImageFormat, Sniffed, sniff};

/// The header of `image`, whatever its format. `file_len` is given to a reader that can go anywhere. Refuses a disk larger
/// than `disk_max`, which this computer should not have to hold.
pub fn header_of(
    image: &[u8],
    file_len: Option<u64>,
    disk_max: u64,
) -> Result<Arc<dyn Layout>, Error> {
    const HEAD: usize = 64 << 10;
    let head = &image[..image.len().min(HEAD)];
    let format = match sniff(head) {
        Sniffed::Image(format) if format != ImageFormat::Raw => format,
        _ => ImageFormat::Qcow2, // and found not to be one
    };
    let whole = (image.len() < HEAD).then_some(image.len() as u64);
    let mut known = KnownBytes::new(head.to_vec(), file_len.or(whole));
    if file_len.is_some() {
        known = known.seekable();
    }
    let layout = loop {
        match open(format, &known)? {
            Opened::Layout(layout) => break layout,
            Opened::Needs(range) => {
                assert!(range.end - range.start <= 1 << 20, "it needs a lot: {range:?}");
                let part = image.get(range.start as usize..range.end as usize);
                let cut = Error::Truncated { what: "image", at: image.len() as u64 };
                known.add(range.start, part.ok_or(cut)?.to_vec());
            }
        }
    };
    match layout.virtual_size() {
        size if size > disk_max => Err(Error::VirtualSize { size }),
        _ => Ok(layout),
    }
}

/// More than any disk made for these tests has grown to.
pub const DISK_MAX: u64 = 1 << 30;

/// The disk in `image`, read through its tables.
pub fn by_ranges(image: &[u8]) -> Result<Vec<u8>, Error> {
    let layout = header_of(image, Some(image.len() as u64), DISK_MAX)?;
    // Whatever a range reader requests is in the file: that is checked before.
    let part = |range: std::ops::Range<u64>| &image[range.start as usize..range.end as usize];
    let tables = Tables::parse(&*layout, part(layout.root_range()))?;
    assert_eq!(tables.len(), layout.table_count());
    let mut disk = vec![0; layout.virtual_size() as usize];
    for index in tables.in_file_order() {
        let table = part(tables.range(index).unwrap());
        let mut guest_min = index * layout.coverage();
        let guest_end = layout.virtual_size().min(guest_min + layout.coverage());
        for piece in tables.pieces(index, table)? {
            let piece = piece?;
            assert!(piece.guest >= guest_min && piece.guest_len > 0, "in the order of the disk");
            guest_min = piece.guest + piece.guest_len;
            assert!(guest_min <= guest_end);
            let bytes = part(piece.host_range());
            let target = &mut disk[piece.guest as usize..][..piece.guest_len as usize];
            match piece.kind {
                PieceKind::Plain => target.copy_from_slice(bytes),
                PieceKind::Compressed => {
                    let cluster = decompress(&*layout, bytes, piece.guest)
                        .filter(|cluster| cluster.len() >= target.len())
                        .ok_or(Error::Truncated { what: "compressed cluster", at: piece.host })?;
                    target.copy_from_slice(&cluster[..target.len()]);
                }
            }
        }
    }
    Ok(disk)
}

/// One cluster out of the bytes of a compressed one, or `None` if they are not one.
pub fn decompress(layout: &dyn Layout, bytes: &[u8], guest: u64) -> Option<Vec<u8>> {
    let mut cluster = vec![0; layout.cluster_size() as usize];
    match layout.codec() {
        Codec::Deflate => {
            let mut inflate = libdeflater::Decompressor::new();
            let len = inflate.deflate_decompress(bytes, &mut cluster).ok()?;
            (len == cluster.len()).then_some(cluster)
        }
        Codec::Zstd => {
            let mut frames = zstd::stream::read::Decoder::with_buffer(bytes).ok()?;
            std::io::Read::read_exact(&mut frames, &mut cluster).ok()?;
            Some(cluster)
        }
        Codec::Grain => {
            let sector = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
            let len = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
            if sector.checked_mul(512) != Some(guest) {
                return None;
            }
            let mut inflate = libdeflater::Decompressor::new();
            let len = inflate.zlib_decompress(bytes[12..].get(..len)?, &mut cluster).ok()?;
            cluster.truncate(len);
            Some(cluster)
        }
    }
}
