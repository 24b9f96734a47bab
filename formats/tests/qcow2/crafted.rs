//! Images made by hand: whatever `qemu-img` would never write.

/// An image of 16 clusters, of which all tables and the first of data can be patched.
///
/// | Cluster | What |
/// |---|---|
/// | 0 | header |
/// | 1 | reference count table, naming block 2 |
/// | 2 | reference count block |
/// | 3 | L1 table: one entry, naming table 4 |
/// | 4 | L2 table: guest cluster n is host cluster 5 + n, up to 11 clusters |
/// | 5… | data: each byte the number of its cluster |
#[derive(Clone)]
pub struct Crafted {
    pub bytes: Vec<u8>,
    cluster_bits: u32,
    l2_entry_size: u64,
}

pub const GUEST_CLUSTERS: u64 = 11;

impl Crafted {
    pub fn new(version: u32, cluster_bits: u32) -> Self {
        let mut image = Self { bytes: vec![0; 16 << cluster_bits], cluster_bits, l2_entry_size: 8 };
        let cluster = |number: u64| number << cluster_bits;
        image.bytes[..4].copy_from_slice(b"QFI\xfb");
        image.put_u32(4, version);
        image.put_u32(20, cluster_bits);
        image.put_u64(24, cluster(GUEST_CLUSTERS));
        image.put_u32(36, 1); // entries of the L1 table
        image.put_u64(40, cluster(3));
        image.put_u64(48, cluster(1));
        image.put_u32(56, 1); // clusters of the refcount table
        if version >= 3 {
            image.put_u32(96, 4); // 16 bits
            image.put_u32(100, 112); // length of the header
        }
        image.put_u64(cluster(1), cluster(2));
        image.put_u64(cluster(3), cluster(4) | 1 << 63);
        for guest in 0..GUEST_CLUSTERS {
            image.put_u64(image.l2_entry(guest), cluster(5 + guest) | 1 << 63);
            let (start, end) = (cluster(5 + guest) as usize, cluster(6 + guest) as usize);
            image.bytes[start..end].fill(5 + guest as u8);
        }
        image
    }

    /// With extended L2 entries, all subclusters of all clusters allocated.
    pub fn extended(cluster_bits: u32) -> Self {
        let mut image = Self::new(3, cluster_bits);
        image.l2_entry_size = 16;
        image.put_u64(72, 1 << 4);
        for guest in (0..GUEST_CLUSTERS).rev() {
            image.put_u64(image.l2_entry(guest), image.cluster(5 + guest) | 1 << 63);
            image.put_u64(image.l2_entry(guest) + 8, 0xffff_ffff);
        }
        image
    }

    pub fn cluster(&self, number: u64) -> u64 {
        number << self.cluster_bits
    }

    /// Where the entry of a guest cluster is.
    pub fn l2_entry(&self, guest: u64) -> u64 {
        self.cluster(4) + guest * self.l2_entry_size
    }

    pub fn put_u32(&mut self, at: u64, value: u32) {
        self.bytes[at as usize..][..4].copy_from_slice(&value.to_be_bytes());
    }

    pub fn put_u64(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..][..8].copy_from_slice(&value.to_be_bytes());
    }

    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}
