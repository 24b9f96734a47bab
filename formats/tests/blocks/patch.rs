//! Changing images in place, checksums included.

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

pub fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Corrects the checksums of a VHD's footer (the copy at the front) and header.
pub fn seal_vhd(image: &mut [u8]) {
    for (at, len, place) in [(0, 512, 64), (512, 1024, 36)] {
        let part = &mut image[at..at + len];
        part[place..place + 4].fill(0);
        let sum: u32 = part.iter().map(|&byte| u32::from(byte)).sum();
        put(part, place, &(!sum).to_be_bytes());
    }
}

/// Corrects the checksums of a VHDX's headers and region tables.
pub fn seal_vhdx(image: &mut [u8]) {
    for (at, len) in [(64 << 10, 4096), (128 << 10, 4096), (192 << 10, 65536), (256 << 10, 65536)] {
        let part = &mut image[at..at + len];
        part[4..8].fill(0);
        let sum = crc32c(part);
        put(part, 4, &sum.to_le_bytes());
    }
}

/// Bit by bit, unlike the one it judges.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 }
        })
    })
}
