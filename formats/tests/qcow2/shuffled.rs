//! Images whose every structure lies anywhere, as no writer would place it: tables behind what they map, compressed
//! clusters of different tables byte by byte behind each other, and rubbish between them.

use formats::one_pass::{Limits, OnePassError};
use proptest::prelude::*;
use testkit::Random;

use crate::checked::in_one_pass_with;
use crate::reader;

/// What a part of the image is, and where it goes is decided by lot.
enum Part {
    L1,
    RefcountTable,
    RefcountBlock,
    L2(usize),
    Plain(usize),
    /// These clusters one directly behind the other, beginning so many bytes into the part.
    Compressed(Vec<usize>, usize),
    Rubbish,
}

struct Shuffled {
    image: Vec<u8>,
    disk: Vec<u8>,
}

/// A disk of `sectors` × 512 bytes. Of 16 clusters `plain` are data as it is, `compressed` are compressed, and the rest
/// is zero.
fn shuffled(cluster_bits: u32, sectors: usize, plain: u64, compressed: u64, seed: u64) -> Shuffled {
    let mut random = Random::new(seed);
    let (cluster_size, entries) = (1 << cluster_bits, 1 << (cluster_bits - 3));
    let clusters = (sectors << 9).div_ceil(cluster_size);
    let mut disk = vec![0; clusters * cluster_size];
    let mut parts = vec![Part::L1, Part::RefcountTable, Part::RefcountBlock];
    parts.extend((0..clusters.div_ceil(entries)).map(Part::L2));
    parts.extend((0..random.below(8)).map(|_| Part::Rubbish));
    let mut streams = Vec::new();
    for (cluster, bytes) in disk.chunks_mut(cluster_size).enumerate() {
        match random.below(16) {
            lot if lot < plain => {
                random.fill(bytes);
                parts.push(Part::Plain(cluster));
            }
            lot if lot < plain + compressed => {
                // Anything from a few bytes to more than half a cluster.
                bytes.fill(random.below(255) as u8 + 1);
                let noise = random.below(cluster_size as u64 / 2) as usize;
                random.fill(&mut bytes[..noise]);
                streams.push(cluster);
            }
            _ => {}
        }
    }
    shuffle(&mut streams, &mut random);
    while !streams.is_empty() {
        let group =
            streams.split_off(streams.len() - streams.len().min(1 + random.below(40) as usize));
        parts.push(Part::Compressed(group, random.below(300) as usize));
    }
    shuffle(&mut parts, &mut random);
    let image = place(&parts, &disk, cluster_bits, sectors, &mut random);
    disk.truncate(sectors << 9);
    Shuffled { image, disk }
}

/// Puts the parts behind each other and writes the tables.
fn place(
    parts: &[Part],
    disk: &[u8],
    cluster_bits: u32,
    sectors: usize,
    random: &mut Random,
) -> Vec<u8> {
    let (cluster_size, entries) = (1 << cluster_bits, 1 << (cluster_bits - 3));
    let guest = |cluster: usize| &disk[cluster << cluster_bits..][..cluster_size];
    let (mut l1, mut refcount_table, mut refcount_block) = (0, 0, 0);
    let mut l2 = vec![0; disk.len().div_ceil(entries << cluster_bits)];
    let mut mapped = vec![0; disk.len() >> cluster_bits];
    let mut image = vec![0; cluster_size];
    for part in parts {
        let at = image.len();
        match part {
            Part::L1 => l1 = at,
            Part::RefcountTable => refcount_table = at,
            Part::RefcountBlock => refcount_block = at,
            Part::L2(index) => l2[*index] = at,
            Part::Plain(cluster) => {
                mapped[*cluster] = at as u64;
                image.extend(guest(*cluster));
            }
            Part::Compressed(group, offset) => {
                image.resize(at + offset, 0xee);
                for &cluster in group {
                    let (at, stream) = (image.len(), deflate(guest(cluster)));
                    image.extend(&stream);
                    let more_sectors = ((image.len() - 1) / 512 - at / 512) as u64;
                    mapped[cluster] =
                        1 << 62 | more_sectors << (62 - (cluster_bits - 8)) | at as u64;
                }
            }
            Part::Rubbish => {
                let mut rubbish = vec![0; cluster_size];
                random.fill(&mut rubbish);
                image.extend(rubbish);
            }
        }
        image.resize(image.len().next_multiple_of(cluster_size).max(at + cluster_size), 0);
    }
    let mut put = |at: usize, value: u64| image[at..at + 8].copy_from_slice(&value.to_be_bytes());
    put(0, 0x5146_49fb_0000_0003);
    put(16, u64::from(cluster_bits));
    put(24, (sectors as u64) << 9);
    put(32, l2.len() as u64);
    put(40, l1 as u64);
    put(48, refcount_table as u64);
    put(56, 1 << 32);
    put(96, 4 << 32 | 104);
    put(refcount_table, refcount_block as u64);
    for (index, &at) in l2.iter().enumerate() {
        put(l1 + index * 8, at as u64);
    }
    for (cluster, &entry) in mapped.iter().enumerate() {
        put(l2[cluster / entries] + cluster % entries * 8, entry);
    }
    put(refcount_block, 0x0001_0001_0001_0001);
    image
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.below(last as u64 + 1) as usize);
    }
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0; bytes.len() + 64];
    let level = libdeflater::CompressionLvl::default();
    let len = libdeflater::Compressor::new(level).deflate_compress(bytes, &mut stream).unwrap();
    stream.truncate(len);
    stream
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_order_of_a_file_does_not_matter(
        cluster_bits in 9..=11_u32,
        sectors in 1..700_usize,
        plain in 0..=16_u64,
        compressed in 0..=16_u64,
        chunk_len in prop::sample::select(vec![1, 100, 512, 5000, 1 << 20]),
        parked_clusters in prop::sample::select(vec![0, 1, 10, 30, 1 << 20]),
        whole_image_bytes in prop::sample::select(vec![0, 20_000, 1 << 20]),
        space_behind in prop::sample::select(vec![0, 1, 7, 1 << 20]),
        seed: u64,
    ) {
        let Shuffled { image, disk } = shuffled(cluster_bits, sectors, plain, compressed, seed);
        prop_assert!(reader::by_ranges(&image).unwrap() == disk, "by ranges");
        let parked_bytes = parked_clusters << cluster_bits;
        let limits = Limits { index_bytes: 1 << 20, parked_bytes, whole_image_bytes };
        // Its ends need not be whole clusters.
        let enough_behind = image.len() as u64 + (2 << cluster_bits);
        let space_behind = (space_behind << cluster_bits).min(enough_behind);
        match in_one_pass_with(&image, chunk_len, limits, space_behind) {
            Ok(outcome) => prop_assert!(outcome.disk == disk, "in one pass"),
            // Tables and rubbish are no more than about 20 clusters, and a disk can hold its data.
            Err(OnePassError::ParkingFull)
                if parked_clusters < 30
                    && space_behind < enough_behind
                    && whole_image_bytes < image.len() => {}
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}
