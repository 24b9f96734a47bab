//! What the cluster has said about tokens, and how often it may be asked. Pure: the clock comes in.
//!
//! Tokens that may read are kept apart from all others: however many unknown tokens clients try, a verdict that monitoring
//! depends on stays. Questions about tokens that were not allowed before are rationed, per source and all together.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Verdict;
use crate::https::Source;

/// Monitoring comes every few seconds, and is not asked about each time. Rights that are taken away end so much later.
pub(super) const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// Whoever is given a right does not wait long for it.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(10);
/// So long after it ran out, a verdict that a token may read still spares its client the ration.
const KNOWN_FOR: Duration = Duration::from_secs(60 * 60);
/// So many tokens of each sort are remembered. There are one or two.
pub(super) const REMEMBERED: usize = 64;
/// So many sources have a ration of their own.
const SOURCES: usize = 1024;

/// How many questions at once, and how long until there is one more.
#[derive(Clone, Copy)]
struct Ration {
    burst: u32,
    every: Duration,
}

const OF_A_SOURCE: Ration = Ration { burst: 5, every: Duration::from_secs(2) };
const OF_ALL: Ration = Ration { burst: 50, every: Duration::from_millis(200) };

/// What may be done about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Known.
    Cached(Verdict),
    /// The cluster has to be asked about a token that was allowed before.
    AskKnown,
    /// The cluster may be asked about a token that is new here.
    AskUnknown,
    /// Too many new tokens.
    Rationed,
}

#[derive(Default)]
pub(super) struct Verdicts {
    /// Until when each may read.
    allowed: HashMap<String, Instant>,
    refused: HashMap<String, (Verdict, Instant)>,
    sources: HashMap<Source, Bucket>,
    all: Bucket,
}

/// A token bucket, written as when it is full again.
#[derive(Clone, Copy, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// When it would be full again if one were taken now; `None` if it is empty.
    fn take(self, ration: Ration, now: Instant) -> Option<Instant> {
        let full_at = self.0.unwrap_or(now).max(now) + ration.every;
        (full_at - now <= ration.every * ration.burst).then_some(full_at)
    }
}

impl Verdicts {
    /// What is known about a token without asking, for nobody's ration.
    pub fn cached(&self, token: &str, now: Instant) -> Option<Verdict> {
        if self.allowed.get(token).is_some_and(|until| now < *until) {
            return Some(Verdict::Allowed);
        }
        let (verdict, until) = self.refused.get(token)?;
        (now < *until).then_some(*verdict)
    }

    /// Decides about a token that a client from `source` shows. A question that it allows is counted.
    pub fn look_up(&mut self, token: &str, source: Source, now: Instant) -> Lookup {
        if let Some(verdict) = self.cached(token, now) {
            return Lookup::Cached(verdict);
        }
        if self.allowed.contains_key(token) {
            return Lookup::AskKnown;
        }
        if self.sources.len() >= SOURCES {
            self.sources.retain(|_, bucket| bucket.0.is_some_and(|full_at| now < full_at));
        }
        let bucket = self.sources.get(&source).copied().unwrap_or_default();
        let of_source = bucket.take(OF_A_SOURCE, now);
        let (Some(of_source), Some(of_all)) = (of_source, self.all.take(OF_ALL, now)) else {
            return Lookup::Rationed;
        };
        // The rations of all together are gone before so many sources have one.
        if self.sources.len() < SOURCES {
            self.sources.insert(source, Bucket(Some(of_source)));
        }
        self.all = Bucket(Some(of_all));
        Lookup::AskUnknown
    }

    /// Remembers what the cluster has said.
    pub fn remember(&mut self, token: &str, verdict: Verdict, now: Instant) {
        if verdict == Verdict::Allowed {
            self.refused.remove(token);
            make_space(&mut self.allowed, token, |until| now < *until + KNOWN_FOR, |until| *until);
            self.allowed.insert(token.to_owned(), now + ALLOWED_FOR);
        } else {
            self.allowed.remove(token);
            make_space(&mut self.refused, token, |(_, until)| now < *until, |(_, until)| *until);
            self.refused.insert(token.to_owned(), (verdict, now + REFUSED_FOR));
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.allowed.len() + self.refused.len()
    }
}

/// Removes what is of no use any more, and if that is not enough the entry that runs out first.
fn make_space<V>(
    entries: &mut HashMap<String, V>,
    token: &str,
    is_useful: impl Fn(&V) -> bool,
    until: impl Fn(&V) -> Instant,
) {
    if entries.len() < REMEMBERED || entries.contains_key(token) {
        return;
    }
    entries.retain(|_, value| is_useful(value));
    if entries.len() >= REMEMBERED {
        let first = entries.iter().min_by_key(|(_, value)| until(value));
        if let Some(first) = first.map(|(token, _)| token.clone()) {
            entries.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn source(n: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    fn refused_tokens_never_displace_an_allowed_one() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.remember("good", Verdict::Allowed, now);
        for n in 0..REMEMBERED * 4 {
            verdicts.remember(&format!("bad {n}"), Verdict::Unknown, now);
        }
        assert_eq!(verdicts.look_up("good", source(1), now), Lookup::Cached(Verdict::Allowed));
        assert!(verdicts.len() <= REMEMBERED + 1);
    }

    #[test]
    fn new_tokens_are_rationed_by_source_and_all_together() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        let asked = |verdicts: &mut Verdicts, from: u8, now| {
            (0..100)
                .filter(|n| {
                    let token = format!("{from} {n}");
                    verdicts.look_up(&token, source(from), now) == Lookup::AskUnknown
                })
                .count()
        };
        assert_eq!(asked(&mut verdicts, 1, now), 5);
        assert_eq!(asked(&mut verdicts, 2, now), 5, "another source has its own");
        let rest: usize = (3..=250).map(|from| asked(&mut verdicts, from, now)).sum();
        assert_eq!(rest, 40, "all together");
        let later = now + Duration::from_secs(4);
        assert_eq!(asked(&mut verdicts, 1, later), 2);
    }

    #[test]
    fn a_token_that_was_allowed_needs_no_ration() {
        let (mut verdicts, now) = (Verdicts::default(), Instant::now());
        verdicts.remember("good", Verdict::Allowed, now);
        let later = now + ALLOWED_FOR;
        for n in 0..100 {
            verdicts.look_up(&format!("bad {n}"), source(1), later);
        }
        assert_eq!(verdicts.look_up("bad", source(1), later), Lookup::Rationed);
        assert_eq!(verdicts.look_up("good", source(1), later), Lookup::AskKnown);
        verdicts.remember("good", Verdict::Unknown, later);
        let expected = Lookup::Cached(Verdict::Unknown);
        assert_eq!(verdicts.look_up("good", source(1), later), expected, "it was taken away");
    }
}
