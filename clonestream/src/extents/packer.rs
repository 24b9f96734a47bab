//! Compression of the data of one frame.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use zstd::bulk::Compressor;

use super::DATA_MAX;
use super::frame::Coding;

/// The fastest one that still finds matches.
const ZSTD_LEVEL: i32 = 1;

/// Compresses data. Each thread has its own packer.
pub struct Packer {
    lz4: CompressTable,
    /// Created when it is needed.
    zstd: Option<Compressor<'static>>,
    packed: Vec<u8>,
}

/// The data of one frame. Data that is sent as it is stays where it is.
#[derive(Clone, Debug)]
pub struct PackedData {
    sum: u32,
    /// `None`: the data itself is the payload.
    packed: Option<(Coding, Vec<u8>)>,
}

impl PackedData {
    /// How it is sent.
    pub(super) fn coding(&self) -> Coding {
        self.packed.as_ref().map_or(Coding::Plain, |(coding, _)| *coding)
    }

    /// The checksum of the data.
    pub(super) fn sum(&self) -> u32 {
        self.sum
    }

    /// What is sent of the data, `bytes`.
    pub(super) fn payload<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        self.packed.as_ref().map_or(bytes, |(_, packed)| packed)
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new()
    }
}

impl Packer {
    pub fn new() -> Self {
        let packed = vec![0; get_maximum_output_size(DATA_MAX)];
        Self { lz4: CompressTable::default(), zstd: None, packed }
    }

    /// Compresses `bytes` if that saves at least a sixteenth, and computes their checksum.
    ///
    /// # Panics
    /// With more than [`DATA_MAX`] bytes.
    pub fn pack(&mut self, bytes: &[u8], coding: Coding) -> PackedData {
        assert!(bytes.len() <= DATA_MAX, "more bytes than fit into a frame");
        let len_max = (bytes.len() - bytes.len() / 16).min(bytes.len().saturating_sub(1));
        let len = match coding {
            Coding::Plain => None,
            Coding::Lz4 => self.pack_lz4(bytes),
            Coding::Zstd => self.pack_zstd(bytes),
        };
        let packed = len.filter(|len| *len <= len_max).map(|len| self.packed[..len].to_vec());
        PackedData {
            sum: crc_fast::crc32_iscsi(bytes),
            packed: packed.map(|packed| (coding, packed)),
        }
    }

    /// The bytes of `packed` that it fills.
    fn pack_lz4(&mut self, bytes: &[u8]) -> Option<usize> {
        // Fails only if the output is too small, and it has the maximum size.
        compress_into_with_table(bytes, &mut self.packed, &mut self.lz4).ok()
    }

    /// The same. `None` also where memory is short, or the output: both are no reason to end a clone.
    fn pack_zstd(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = Some(Compressor::new(ZSTD_LEVEL).ok()?);
        }
        self.zstd.as_mut()?.compress_to_buffer(bytes, &mut self.packed[..]).ok()
    }
}
