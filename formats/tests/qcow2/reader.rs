//! A whole image in memory becomes a whole disk in memory, by ranges.

use formats::Error;
use formats::qcow2::{ClusterCompression, Header, L1, PieceKind};

/// The header of `image`. Refuses a disk larger than `disk_max`, which this computer should not have to hold.
pub fn header_of(image: &[u8], file_len: Option<u64>, disk_max: u64) -> Result<Header, Error> {
    let header = Header::parse(&image[..image.len().min(Header::HEAD_LEN)], file_len)?;
    match header.virtual_size() {
        size if size > disk_max => Err(Error::VirtualSize { size }),
        _ => Ok(header),
    }
}

/// More than any disk made for these tests has grown to.
pub const DISK_MAX: u64 = 1 << 30;

/// The disk in `image`, read through its tables.
pub fn by_ranges(image: &[u8]) -> Result<Vec<u8>, Error> {
    let header = header_of(image, Some(image.len() as u64), DISK_MAX)?;
    // Whatever a range reader asks for is in the file: that is checked before.
    let part = |at: u64, len: u64| &image[at as usize..(at + len) as usize];
    let l1_range = header.l1_range();
    let l1 = L1::parse(&header, part(l1_range.start, l1_range.end - l1_range.start))?;
    let mut disk = vec![0; header.virtual_size() as usize];
    for index in l1.in_file_order() {
        let table = part(l1.l2_offset(index).unwrap(), header.cluster_size());
        let mut guest_min = index * header.l2_coverage();
        for piece in l1.pieces(index, table)? {
            let piece = piece?;
            assert!(piece.guest >= guest_min, "pieces in the order of the disk");
            guest_min = piece.guest + piece.guest_len;
            let bytes = part(piece.host, piece.host_len);
            let target = &mut disk[piece.guest as usize..][..piece.guest_len as usize];
            match piece.kind {
                PieceKind::Plain => target.copy_from_slice(bytes),
                PieceKind::Compressed => {
                    let cluster = decompress(&header, bytes)
                        .ok_or(Error::Truncated { what: "compressed cluster", at: piece.host })?;
                    target.copy_from_slice(&cluster[..target.len()]);
                }
            }
        }
    }
    Ok(disk)
}

/// One cluster out of the bytes of a compressed one, or `None` if they are not one.
pub fn decompress(header: &Header, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut cluster = vec![0; header.cluster_size() as usize];
    match header.compression() {
        ClusterCompression::Zlib => {
            let mut inflate = libdeflater::Decompressor::new();
            let len = inflate.deflate_decompress(bytes, &mut cluster).ok()?;
            (len == cluster.len()).then_some(cluster)
        }
        ClusterCompression::Zstd => {
            let mut frames = zstd::stream::read::Decoder::with_buffer(bytes).ok()?;
            std::io::Read::read_exact(&mut frames, &mut cluster).ok()?;
            Some(cluster)
        }
    }
}
