//! Every kind of qcow2 file that qemu-img can write: its options as data, and a strategy over them.

use proptest::prelude::*;

/// How a qcow2 file is made. [`Default`] is what `qemu-img convert -O qcow2` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Options {
    /// Clusters are 2^this bytes: 9 (512 B) to 21 (2 MiB).
    pub cluster_bits: u32,
    /// Format version 2 instead of 3.
    pub version_2: bool,
    /// `-c`: clusters are compressed.
    pub compressed: bool,
    /// Compressed clusters are zstd instead of deflate. Version 3.
    pub zstd: bool,
    /// 32 subclusters per cluster. Version 3, clusters of 16 KiB and more.
    pub extended_l2: bool,
    /// Reference counts are written late. Version 3.
    pub lazy_refcounts: bool,
    /// Width of a reference count: 1, 2, 4 … 64. Version 2 has 16.
    pub refcount_bits: u32,
    /// `metadata`, `falloc`, `full`. Not with compression.
    pub preallocation: Option<&'static str>,
    /// `-W`: clusters in the order in which they were read.
    pub out_of_order: bool,
    /// What happens to the file later, in order.
    pub history: Vec<Change>,
}

/// Something done to a finished qcow2 file. Addresses and lengths are shares of the disk in 1/1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The guest writes one byte again and again.
    Write {
        /// Where, in 1/1024 of the disk.
        at: u64,
        /// How much, in 1/1024 of the disk.
        len: u64,
        byte: u8,
    },
    /// The guest writes zeroes, without data: zero clusters.
    Zero {
        /// Where, in 1/1024 of the disk.
        at: u64,
        /// How much, in 1/1024 of the disk.
        len: u64,
    },
    /// The guest discards a range.
    Discard {
        /// Where, in 1/1024 of the disk.
        at: u64,
        /// How much, in 1/1024 of the disk.
        len: u64,
    },
    /// An internal snapshot is taken: later writes move data and tables. Needs reference counts above 1.
    Snapshot,
    /// The disk grows by this many per cent: its L1 table may move behind the data.
    Grow(u64),
    /// The writer dies in the middle, having written one byte: with lazy reference counts the file stays dirty.
    Crash,
}

impl Default for Qcow2Options {
    fn default() -> Self {
        Self {
            cluster_bits: 16,
            version_2: false,
            compressed: false,
            zstd: false,
            extended_l2: false,
            lazy_refcounts: false,
            refcount_bits: 16,
            preallocation: None,
            out_of_order: false,
            history: Vec::new(),
        }
    }
}

impl Qcow2Options {
    /// The text behind `-o`.
    pub fn option_text(&self) -> String {
        let mut text = format!("cluster_size={}", 1u64 << self.cluster_bits);
        if self.version_2 {
            text += ",compat=0.10";
        } else {
            text += &format!(",compat=1.1,refcount_bits={}", self.refcount_bits);
            text += if self.zstd { ",compression_type=zstd" } else { "" };
            text += if self.extended_l2 { ",extended_l2=on" } else { "" };
            text += if self.lazy_refcounts { ",lazy_refcounts=on" } else { "" };
        }
        if let Some(preallocation) = self.preallocation {
            text += &format!(",preallocation={preallocation}");
        }
        text
    }

    /// The nearest options that qemu-img accepts: what contradicts an earlier field is dropped.
    #[must_use]
    pub fn consistent(mut self) -> Self {
        if self.version_2 {
            (self.zstd, self.extended_l2, self.lazy_refcounts) = (false, false, false);
            self.refcount_bits = 16;
        }
        self.extended_l2 &= self.cluster_bits >= 14;
        if self.compressed {
            self.preallocation = None;
        }
        let mut snapshots = 0u64;
        // A count has to reach the number of snapshots plus one; version 2 cannot grow while it has snapshots.
        let count_max =
            1u64.checked_shl(1 << self.refcount_bits.ilog2()).map_or(u64::MAX, |top| top - 1);
        let Self { version_2, compressed, refcount_bits, .. } = self;
        self.history.retain(|change| match change {
            Change::Snapshot => {
                // Compressed clusters that share a host cluster are counted each, and twice after a snapshot.
                let fits = snapshots + 1 < count_max && !(compressed && refcount_bits < 16);
                snapshots += u64::from(fits);
                fits
            }
            Change::Grow(_) => !(version_2 && snapshots > 0),
            _ => true,
        });
        self
    }
}

/// The whole option space of qemu-img, and up to six later changes.
pub fn qcow2_options() -> impl Strategy<Value = Qcow2Options> {
    let share = || (0..1024u64, 0..128u64);
    let change = prop_oneof![
        3 => (share(), 1..=255u8).prop_map(|((at, len), byte)| Change::Write { at, len, byte }),
        2 => share().prop_map(|(at, len)| Change::Zero { at, len }),
        1 => share().prop_map(|(at, len)| Change::Discard { at, len }),
        2 => Just(Change::Snapshot),
        1 => (1..200u64).prop_map(Change::Grow),
        1 => Just(Change::Crash),
    ];
    let history = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(change, 1..6)];
    let preallocation = prop_oneof![
        4 => Just(None),
        1 => prop::sample::select(vec!["metadata", "falloc", "full"]).prop_map(Some),
    ];
    let refcount_bits = prop_oneof![2 => Just(16), 1 => (0..=6u32).prop_map(|power| 1 << power)];
    let switches = (
        prop::bool::weighted(0.2),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
    );
    (9..=21u32, switches, refcount_bits, preallocation, history).prop_map(
        |(cluster_bits, switches, refcount_bits, preallocation, history)| {
            let (version_2, compressed, zstd, extended_l2, lazy_refcounts, out_of_order) = switches;
            Qcow2Options {
                cluster_bits,
                version_2,
                compressed,
                zstd,
                extended_l2,
                lazy_refcounts,
                refcount_bits,
                preallocation,
                out_of_order,
                history,
            }
            .consistent()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sparse_disk;
    use crate::qemu_img::QemuImg;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn qemu_img_accepts_every_combination(disk in sparse_disk(4 << 20), how in qcow2_options()) {
            let Some(qemu) = QemuImg::require() else { return Ok(()) };
            let image = qemu.qcow2(&disk, &how);
            let raw = qemu.to_raw(image.path(), "qcow2");
            if how.history.is_empty() {
                prop_assert_eq!(raw, disk.bytes());
            } else {
                prop_assert!(raw.len() as u64 >= disk.len());
            }
        }
    }
}
