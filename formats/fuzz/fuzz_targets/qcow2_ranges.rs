//! Any bytes, read as qcow2 through their tables: refused, or pieces that are where they may be.

#![no_main]

use formats::Error;
use formats::qcow2::{Header, L1, PieceKind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|image: &[u8]| {
    let _ = read(image);
});

fn read(image: &[u8]) -> Result<(), Error> {
    let head = &image[..image.len().min(Header::HEAD_LEN)];
    // Without the file's length there is nothing more to go wrong, only less to be noticed.
    let _ = Header::parse(head, None);
    let header = Header::parse(head, Some(image.len() as u64))?;
    let l1_range = header.l1_range();
    let l1 = L1::parse(&header, &image[l1_range.start as usize..l1_range.end as usize])?;
    assert_eq!(l1.len(), header.l2_tables());
    for index in l1.in_file_order() {
        let at = l1.l2_offset(index).expect("named in the order of the file") as usize;
        let table = &image[at..at + header.cluster_size() as usize];
        let mut guest = index * header.l2_coverage();
        let guest_end = header.virtual_size().min(guest + header.l2_coverage());
        for piece in l1.pieces(index, table)? {
            let piece = piece?;
            assert!(piece.guest >= guest && piece.guest_len > 0);
            guest = piece.guest + piece.guest_len;
            assert!(guest <= guest_end);
            let host = piece.host_range();
            assert!(host.start >= header.cluster_size() && host.end <= image.len() as u64);
            match piece.kind {
                PieceKind::Plain => assert_eq!(piece.host_len, piece.guest_len),
                PieceKind::Compressed => assert!(piece.host_len <= 2 * header.cluster_size()),
            }
        }
    }
    Ok(())
}
