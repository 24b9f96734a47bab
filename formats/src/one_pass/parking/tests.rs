//! Tests of the parking on a small target in memory.

use super::*;

/// Only parking matters here.
pub(super) struct Target(Vec<u8>);

impl Output for Target {
    fn plain(&mut self, _: Range<usize>, _: u64) -> io::Result<()> {
        unreachable!("the parking plan has no such action")
    }
    fn compressed(&mut self, _: Range<usize>, _: u64) -> io::Result<()> {
        unreachable!("the parking plan has no such action")
    }
    fn plain_owned(&mut self, _: Vec<u8>, _: u64) -> io::Result<()> {
        unreachable!("the parking plan has no such action")
    }
    fn compressed_owned(&mut self, _: Vec<u8>, _: u64) -> io::Result<()> {
        unreachable!("the parking plan has no such action")
    }
    fn store(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
    fn load(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.copy_from_slice(&self.0[at as usize..][..buffer.len()]);
        Ok(())
    }
    fn clear(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.0[at as usize..][..len as usize].fill(0);
        Ok(())
    }
}

pub(super) const CLUSTER: u64 = 1024;

/// A disk of eight clusters, and `memory_max` bytes of memory.
pub(super) fn parking(memory_max: usize) -> (Parking, Target) {
    (Parking::new(8 * CLUSTER, CLUSTER, memory_max), Target(vec![0; 12 * CLUSTER as usize]))
}

/// Every byte different from its neighbours, and none zero.
pub(super) fn bytes(range: &Range<u64>) -> Vec<u8> {
    range.clone().map(|at| (at % 251) as u8 + 1).collect()
}

#[test]
fn parked_clusters_move_until_the_disk_is_full() {
    let (mut parking, mut target) = parking(0);
    let host = 10 * CLUSTER..14 * CLUSTER;
    parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
    for guest in (0..8).rev().take(4) {
        parking.vacate(guest * CLUSTER..(guest + 1) * CLUSTER, &mut target).unwrap();
        let location = &target.0[(guest * CLUSTER) as usize..][..CLUSTER as usize];
        assert!(is_zero(location), "vacated");
    }
    assert!(matches!(parking.vacate(0..CLUSTER, &mut target), Err(ParkError::Full)));
}

#[test]
fn parked_clusters_move_behind_a_full_disk_and_leave_no_trace_there() {
    let (mut parking, mut target) = parking(0);
    parking.add_space_behind(&(8 * CLUSTER..12 * CLUSTER));
    let host = 10 * CLUSTER..14 * CLUSTER;
    parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
    for guest in 0..8 {
        parking.vacate(guest * CLUSTER..(guest + 1) * CLUSTER, &mut target).unwrap();
    }
    assert!(is_zero(&target.0[..8 * CLUSTER as usize]), "vacated");
    let more = parking.park(20 * CLUSTER, &[1], None, &mut target);
    assert!(matches!(more, Err(ParkError::Full)), "{more:?}");
    let claimed = host.start..host.start + 2 * CLUSTER;
    assert_eq!(parking.claim_all(&claimed, &mut target).unwrap(), bytes(&claimed));
    parking.abandon(&mut target).unwrap();
    assert!(is_zero(&target.0));
}

#[test]
fn a_lower_memory_limit_moves_what_exceeds_it_to_the_target() {
    for memory_max in [0, 1500, 3000, 9999] {
        let (mut parking, mut target) = parking(9999);
        let host = 10 * CLUSTER + 100..14 * CLUSTER;
        parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
        assert!(is_zero(&target.0), "all of it is in memory");
        parking.limit_memory(memory_max, &mut target).unwrap();
        assert!(parking.index.memory_used() <= memory_max);
        assert_eq!(is_zero(&target.0), memory_max == 9999);
        assert_eq!(parking.claim_all(&host, &mut target).unwrap(), bytes(&host));
    }
}

#[test]
fn parked_cluster_is_returned_unchanged() {
    for memory_max in [0, 1500, 9999] {
        let (mut parking, mut target) = parking(memory_max);
        let host = 10 * CLUSTER + 100..13 * CLUSTER + 50;
        parking.park(host.start, &bytes(&host), None, &mut target).unwrap();
        let part = 11 * CLUSTER + 7..12 * CLUSTER + 9;
        assert_eq!(parking.claim_all(&part, &mut target).unwrap(), bytes(&part));
        assert_eq!(parking.claim(&part, None, &mut target).unwrap(), None);
        for rest in [host.start..part.start, part.end..host.end] {
            assert_eq!(parking.claim_all(&rest, &mut target).unwrap(), bytes(&rest));
        }
        parking.abandon(&mut target).unwrap();
        assert!(is_zero(&target.0));
    }
}

#[test]
fn a_cluster_parked_at_home_stays_there() {
    let (mut parking, mut target) = parking(0);
    let host = 10 * CLUSTER..13 * CLUSTER;
    parking.park(host.start, &bytes(&host), Some(2 * CLUSTER), &mut target).unwrap();
    let claimed = parking.claim(&host, Some(2 * CLUSTER), &mut target).unwrap();
    assert_eq!(claimed, Some(Claimed::InPlace(3 * CLUSTER)));
    parking.abandon(&mut target).unwrap();
    assert_eq!(target.0[2 * CLUSTER as usize..5 * CLUSTER as usize], bytes(&host));
}
