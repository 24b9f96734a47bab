//! What the decoder writes for each byte of the content.

/// A byte, or a 16-bit number that is a byte or refers to one that is not known yet.
pub(crate) trait OutputByte: Copy + Default + From<u8> {
    /// Copies bytes as they are. Both slices have the same length.
    fn copy_bytes(out: &mut [Self], bytes: &[u8]);
}

impl OutputByte for u8 {
    fn copy_bytes(out: &mut [Self], bytes: &[u8]) {
        out.copy_from_slice(bytes);
    }
}

impl OutputByte for u16 {
    fn copy_bytes(out: &mut [Self], bytes: &[u8]) {
        for (out, byte) in out.iter_mut().zip(bytes) {
            *out = (*byte).into();
        }
    }
}
