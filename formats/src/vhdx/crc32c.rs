//! CRC-32C, of the few kilobytes that are headers.

const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

/// The checksum of `bytes`, its own place, the four bytes at `place`, counted as zeroes.
pub(super) fn sum(bytes: &[u8], place: usize) -> u32 {
    let step = |crc: u32, byte: u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)];
    let parts = [&bytes[..place], &[0; 4], &bytes[place + 4..]];
    !parts.into_iter().flatten().fold(u32::MAX, |crc, &byte| step(crc, byte))
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32c_has_the_published_check_value() {
        assert_eq!(super::sum(b"1234\0\0\0\0", 4), super::sum(b"1234abcd", 4));
        // CRC-32/ISCSI of 32 zeroes, RFC 3720, appendix B.4.
        assert_eq!(super::sum(&[0; 32], 4), 0x8a91_36aa);
    }
}
