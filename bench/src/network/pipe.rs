//! One direction of a simulated link, as arithmetic: when each packet arrives, or that it is lost.

use std::time::Duration;

use testkit::Random;

/// What a link does to packets, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bits per second.
    pub bits_per_second: u64,
    /// From one end to the other and back, without load.
    pub round_trip: Duration,
    /// Packets lost of every 10,000, at random.
    pub lost_of_10000: u64,
}

/// A packet waits at most this long for those before it, as in the buffer of a switch; one that would have to wait longer is lost.
const QUEUE: Duration = Duration::from_millis(20);

/// The state of one direction. Times count from any one moment.
#[derive(Debug)]
pub struct Pipe {
    link: Link,
    random: Random,
    /// When the last packet has left the sender.
    free_at: Duration,
}

impl Pipe {
    /// An idle one. The same `seed` loses the same packets.
    pub fn new(link: Link, seed: u64) -> Self {
        Self { link, random: Random::new(seed), free_at: Duration::ZERO }
    }

    /// When a packet of `len` bytes that is sent at `now` arrives; `None` if it is lost.
    pub fn arrival(&mut self, now: Duration, len: usize) -> Option<Duration> {
        let starts_at = self.free_at.max(now);
        if starts_at - now > QUEUE {
            return None;
        }
        let nanoseconds = len as u64 * 8 * 1_000_000_000 / self.link.bits_per_second;
        self.free_at = starts_at + Duration::from_nanos(nanoseconds);
        let is_lost = self.random.below(10_000) < self.link.lost_of_10000;
        (!is_lost).then(|| self.free_at + self.link.round_trip / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// A packet of 1250 bytes takes 10 ms.
    const SLOW: Link = Link { bits_per_second: 1_000_000, round_trip: MS, lost_of_10000: 0 };

    #[test]
    fn packet_arrives_after_its_transmission_and_half_a_round_trip() {
        let mut pipe = Pipe::new(SLOW, 1);
        assert_eq!(pipe.arrival(5 * MS, 1250), Some(15 * MS + MS / 2));
        assert_eq!(pipe.arrival(6 * MS, 1250), Some(25 * MS + MS / 2), "behind the first");
        assert_eq!(pipe.arrival(90 * MS, 125), Some(91 * MS + MS / 2), "the link was idle");
    }

    #[test]
    fn packet_that_finds_the_queue_full_is_lost_and_takes_no_time() {
        let mut pipe = Pipe::new(SLOW, 1);
        for _ in 0..3 {
            assert!(pipe.arrival(Duration::ZERO, 1250).is_some());
        }
        assert_eq!(pipe.arrival(Duration::ZERO, 1250), None, "30 ms of packets are waiting");
        assert_eq!(pipe.arrival(10 * MS, 1250), Some(40 * MS + MS / 2));
    }

    #[test]
    fn given_share_is_lost() {
        let link = Link { lost_of_10000: 100, bits_per_second: 1_000_000_000, ..SLOW };
        let mut pipe = Pipe::new(link, 7);
        let lost = (0..100_000u64).filter(|n| pipe.arrival(*n as u32 * MS, 1250).is_none()).count();
        assert!((900..1100).contains(&lost), "{lost}");
    }
}
