//! Which connections a server keeps when more arrive than it has slots for. Pure: no sockets, no clock of its own.
//!
//! A connection is either *protected* (an accepted request is in flight, or the client has shown a verified certificate)
//! or *waiting* (handshake, request not yet accepted, idle). Only waiting connections are evicted. The victim comes from
//! the source with the most waiting connections, so that a flood from one address evicts itself; among equal sources the
//! connection that has waited longest goes, so that a new client has time to send its request.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use tokio::time::Instant;

/// The clients that share a limit: one IPv4 address, or one IPv6 /64, which is what a single machine is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// Number of a connection. Never reused.
pub(super) type Id = u64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub connections: usize,
    /// Waiting connections of one source.
    pub waiting_per_source: usize,
    /// Evicted connections that are still ending in an orderly way, on top of the others.
    pub ending: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// A slot is free.
    Admitted(Id),
    /// It takes the slot of another connection.
    Instead { id: Id, victim: Id, eviction: Eviction },
    /// All slots are held by protected connections.
    Full,
}

/// How a connection loses its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// Graceful close: requests in flight are finished, the client may connect again.
    Orderly,
    /// The connection is closed at once: it has never had a request, or too many are still ending.
    Immediate,
}

#[derive(Debug)]
struct Slot {
    source: Source,
    /// When it began to wait; `None` while it is protected.
    waiting_since: Option<Instant>,
    has_served: bool,
}

/// The slots of one server.
#[derive(Debug)]
pub(super) struct Slots {
    capacity: Capacity,
    next: Id,
    open: HashMap<Id, Slot>,
    /// The waiting connections of each source, the oldest first. No set is empty.
    waiting: HashMap<Source, BTreeSet<(Instant, Id)>>,
    /// Evicted connections that have not ended yet.
    ending: BTreeSet<Id>,
}

impl Slots {
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            next: 0,
            open: HashMap::new(),
            waiting: HashMap::new(),
            ending: BTreeSet::new(),
        }
    }

    pub fn admit(&mut self, source: Source, now: Instant) -> Admission {
        let of_source = self.waiting.get(&source).map_or(0, BTreeSet::len);
        let victim = if of_source >= self.capacity.waiting_per_source {
            self.oldest(source)
        } else if self.open.len() >= self.capacity.connections {
            match self.largest_source().and_then(|source| self.oldest(source)) {
                Some(victim) => Some(victim),
                None => return Admission::Full,
            }
        } else {
            None
        };
        let eviction = victim.map(|victim| (victim, self.evict(victim)));
        // The source's own limit may free a slot of a server that is over its capacity for no other reason.
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Slot { source, waiting_since: None, has_served: false });
        self.wait(id, now);
        match eviction {
            None => Admission::Admitted(id),
            Some((victim, eviction)) => Admission::Instead { id, victim, eviction },
        }
    }

    /// A request was accepted, or the client has a verified certificate.
    pub fn protect(&mut self, id: Id) {
        let Some(slot) = self.open.get_mut(&id) else { return };
        let (source, since) = (slot.source, slot.waiting_since.take());
        self.stop_waiting(source, since, id);
    }

    /// No accepted request is in flight any more, or the last response was sent: the connection waits from `now` on.
    pub fn release(&mut self, id: Id, now: Instant) {
        if let Some(slot) = self.open.get_mut(&id) {
            slot.has_served = true;
            self.wait(id, now);
        }
    }

    pub fn remove(&mut self, id: Id) {
        self.ending.remove(&id);
        self.protect(id);
        self.open.remove(&id);
    }

    fn wait(&mut self, id: Id, now: Instant) {
        let Some(slot) = self.open.get_mut(&id) else { return };
        let (source, before) = (slot.source, slot.waiting_since.replace(now));
        self.stop_waiting(source, before, id);
        self.waiting.entry(source).or_default().insert((now, id));
    }

    fn stop_waiting(&mut self, source: Source, since: Option<Instant>, id: Id) {
        let (Some(since), Some(queue)) = (since, self.waiting.get_mut(&source)) else { return };
        queue.remove(&(since, id));
        if queue.is_empty() {
            self.waiting.remove(&source);
        }
    }

    fn oldest(&self, source: Source) -> Option<Id> {
        self.waiting.get(&source)?.first().map(|(_, id)| *id)
    }

    fn largest_source(&self) -> Option<Source> {
        let oldest = |queue: &BTreeSet<(Instant, Id)>| std::cmp::Reverse(queue.first().copied());
        let largest = self.waiting.iter().max_by_key(|(_, queue)| (queue.len(), oldest(queue)));
        largest.map(|(source, _)| *source)
    }

    fn evict(&mut self, id: Id) -> Eviction {
        let has_served = self.open.get(&id).is_some_and(|slot| slot.has_served);
        self.remove(id);
        let eviction = if has_served && self.ending.len() < self.capacity.ending {
            Eviction::Orderly
        } else {
            Eviction::Immediate
        };
        self.ending.insert(id);
        eviction
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CAPACITY: Capacity = Capacity { connections: 4, waiting_per_source: 3, ending: 1 };

    /// What happens to the slots, one second after the other.
    #[derive(Clone, Copy)]
    enum Event {
        Connect(u8),
        Protect(Id),
        Release(Id),
        Remove(Id),
    }
    use Event::{Connect, Protect, Release, Remove};

    fn source(n: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, n]))
    }

    /// Applies the events and returns the admission of the last, which has to be a connection.
    fn play(events: &[Event]) -> Admission {
        let mut slots = Slots::new(CAPACITY);
        let (mut now, mut last) = (Instant::now(), Admission::Full);
        for event in events {
            now += Duration::from_secs(1);
            match *event {
                Connect(n) => last = slots.admit(source(n), now),
                Protect(id) => slots.protect(id),
                Release(id) => slots.release(id, now),
                Remove(id) => slots.remove(id),
            }
        }
        last
    }

    #[test]
    fn admission_decision_table() {
        let instead = |id, victim, eviction| Admission::Instead { id, victim, eviction };
        let (orderly, immediate) = (Eviction::Orderly, Eviction::Immediate);
        let four = [Connect(1), Connect(2), Connect(3), Connect(4)];
        let table: &[(&str, Vec<Event>, Admission)] = &[
            ("a free slot", vec![Connect(1)], Admission::Admitted(0)),
            ("the last free slot", four.to_vec(), Admission::Admitted(3)),
            (
                "full, equal sources: the oldest",
                [&four[..], &[Connect(5)]].concat(),
                instead(4, 0, immediate),
            ),
            (
                "full, one source has more: its oldest",
                vec![Connect(1), Connect(2), Connect(2), Connect(3), Connect(4)],
                instead(4, 1, immediate),
            ),
            (
                "one source at its limit, slots free: its own oldest",
                vec![Connect(2), Connect(2), Connect(2), Connect(2)],
                instead(3, 0, immediate),
            ),
            (
                "protected connections do not count against their source",
                vec![Connect(2), Connect(2), Protect(0), Connect(2), Connect(2)],
                Admission::Admitted(3),
            ),
            (
                "a protected connection is never the victim",
                [&four[..], &[Protect(0), Connect(5)]].concat(),
                instead(4, 1, immediate),
            ),
            (
                "all protected",
                [&four[..], &[Protect(0), Protect(1), Protect(2), Protect(3), Connect(5)]].concat(),
                Admission::Full,
            ),
            (
                "one of all protected is released: it ends in order",
                [
                    &four[..],
                    &[Protect(0), Protect(1), Protect(2), Protect(3), Release(2), Connect(5)],
                ]
                .concat(),
                instead(4, 2, orderly),
            ),
            (
                "an answered request makes a connection the youngest",
                [&four[..], &[Release(0), Connect(5)]].concat(),
                instead(4, 1, immediate),
            ),
            (
                "too many are still ending",
                [
                    &four[..],
                    &[Release(0), Release(1), Release(2), Release(3), Connect(5), Connect(6)],
                ]
                .concat(),
                instead(5, 1, immediate),
            ),
            (
                "an evicted connection that has ended no longer counts as ending",
                [
                    &four[..],
                    &[
                        Release(0),
                        Release(1),
                        Release(2),
                        Release(3),
                        Connect(5),
                        Remove(0),
                        Connect(6),
                    ],
                ]
                .concat(),
                instead(5, 1, orderly),
            ),
            (
                "an ended connection leaves its slot",
                [&four[..], &[Remove(2), Connect(5)]].concat(),
                Admission::Admitted(4),
            ),
        ];
        for (case, events, expected) in table {
            assert_eq!(play(events), *expected, "{case}");
        }
    }

    #[test]
    fn flood_from_one_source_evicts_only_itself() {
        let mut slots = Slots::new(Capacity { connections: 32, waiting_per_source: 8, ending: 8 });
        let start = Instant::now();
        let Admission::Admitted(friend) = slots.admit(source(1), start) else { panic!() };
        for n in 1..10_000 {
            match slots.admit(source(2), start + Duration::from_millis(n)) {
                Admission::Full => panic!("no slot for connection {n}"),
                Admission::Instead { victim, .. } => assert_ne!(victim, friend),
                Admission::Admitted(_) => {}
            }
        }
        assert!(slots.open.len() <= 32);
    }

    /// After any sequence: no more connections than the capacity, and each waiting connection listed once.
    #[test]
    fn slot_table_is_consistent_after_any_sequence() {
        let mut random = 7_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let mut slots = Slots::new(CAPACITY);
        let start = Instant::now();
        for step in 0..20_000 {
            let now = start + Duration::from_secs(step / 3); // some at the same moment
            let id = slots.next.saturating_sub(draw(8));
            match draw(5) {
                0 => slots.protect(id),
                1 => slots.release(id, now),
                2 => slots.remove(id),
                _ => {
                    let from = u8::try_from(draw(4)).unwrap();
                    slots.admit(source(from), now);
                }
            }
            assert!(slots.open.len() <= CAPACITY.connections, "step {step}");
            let waiting = slots.open.values().filter(|slot| slot.waiting_since.is_some()).count();
            let listed: usize = slots.waiting.values().map(BTreeSet::len).sum();
            assert_eq!(waiting, listed, "step {step}");
            assert!(slots.waiting.values().all(|queue| !queue.is_empty()), "step {step}");
        }
    }

    #[test]
    fn sources_are_ipv4_addresses_or_ipv6_networks() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    }
}
