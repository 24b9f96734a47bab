//! Cached decisions about tokens, and the rate limits of reviews. Pure: the clock is an argument.
//!
//! Allowed tokens have a cache of their own: however many unknown tokens clients try, the decision that monitoring depends
//! on stays. Reviews of tokens that were not allowed before are rate-limited, per source and in all.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::AccessDecision;
use crate::https::Source;

/// Monitoring reads every few seconds. A revoked permission takes effect after this time.
pub(super) const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// A granted permission takes effect after this time.
pub(super) const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How long after its expiry an `Allowed` decision still exempts its token from the rate limits.
const KNOWN_FOR: Duration = Duration::from_secs(60 * 60);
/// Capacity for allowed and for refused tokens each. A cluster has one or two that read metrics.
pub(super) const CACHE_CAPACITY: usize = 64;
/// Sources with a rate limit of their own.
const SOURCES_MAX: usize = 1024;

/// A token bucket: `burst` reviews at once, one more after each `every`.
#[derive(Clone, Copy)]
struct RateLimit {
    burst: u32,
    every: Duration,
}

const PER_SOURCE: RateLimit = RateLimit { burst: 5, every: Duration::from_secs(2) };
const IN_ALL: RateLimit = RateLimit { burst: 50, every: Duration::from_millis(200) };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheLookup {
    Cached(AccessDecision),
    /// To be reviewed: it was allowed before.
    ReviewKnownToken,
    /// To be reviewed: it is new or was refused.
    ReviewUnknownToken,
    RateLimited,
}

#[derive(Default)]
pub(super) struct DecisionCache {
    /// When each decision expires.
    allowed: HashMap<String, Instant>,
    refused: HashMap<String, (AccessDecision, Instant)>,
    sources: HashMap<Source, Bucket>,
    all: Bucket,
}

/// The state of a token bucket: when it is full again.
#[derive(Clone, Copy, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// When it would be full again if one were taken now; `None` if it is empty.
    fn take(self, limit: RateLimit, now: Instant) -> Option<Instant> {
        let full_at = self.0.unwrap_or(now).max(now) + limit.every;
        (full_at - now <= limit.every * limit.burst).then_some(full_at)
    }
}

impl DecisionCache {
    /// The decision about a token, if it has not expired. Does not count against a rate limit.
    pub fn cached(&self, token: &str, now: Instant) -> Option<AccessDecision> {
        if self.allowed.get(token).is_some_and(|until| now < *until) {
            return Some(AccessDecision::Allowed);
        }
        let (decision, until) = self.refused.get(token)?;
        (now < *until).then_some(*decision)
    }

    /// Looks up a token presented by a client from `source`. A review that it permits counts against the rate limits.
    pub fn look_up(&mut self, token: &str, source: Source, now: Instant) -> CacheLookup {
        if let Some(decision) = self.cached(token, now) {
            return CacheLookup::Cached(decision);
        }
        if self.allowed.contains_key(token) {
            return CacheLookup::ReviewKnownToken;
        }
        if self.sources.len() >= SOURCES_MAX {
            self.sources.retain(|_, bucket| bucket.0.is_some_and(|full_at| now < full_at));
        }
        let bucket = self.sources.get(&source).copied().unwrap_or_default();
        let of_source = bucket.take(PER_SOURCE, now);
        let (Some(of_source), Some(of_all)) = (of_source, self.all.take(IN_ALL, now)) else {
            return CacheLookup::RateLimited;
        };
        // The limit for all sources is reached before so many sources have one.
        if self.sources.len() < SOURCES_MAX {
            self.sources.insert(source, Bucket(Some(of_source)));
        }
        self.all = Bucket(Some(of_all));
        CacheLookup::ReviewUnknownToken
    }

    pub fn remember(&mut self, token: &str, decision: AccessDecision, now: Instant) {
        if decision == AccessDecision::Allowed {
            self.refused.remove(token);
            make_space(&mut self.allowed, token, |until| now < *until + KNOWN_FOR, |until| *until);
            self.allowed.insert(token.to_owned(), now + ALLOWED_FOR);
        } else {
            self.allowed.remove(token);
            make_space(&mut self.refused, token, |(_, until)| now < *until, |(_, until)| *until);
            self.refused.insert(token.to_owned(), (decision, now + REFUSED_FOR));
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.allowed.len() + self.refused.len()
    }
}

/// Frees an entry for `token`: removes entries that are not useful any more, or else the entry that expires first.
fn make_space<V>(
    entries: &mut HashMap<String, V>,
    token: &str,
    is_useful: impl Fn(&V) -> bool,
    until: impl Fn(&V) -> Instant,
) {
    if entries.len() < CACHE_CAPACITY || entries.contains_key(token) {
        return;
    }
    entries.retain(|_, value| is_useful(value));
    if entries.len() >= CACHE_CAPACITY {
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
    fn refused_tokens_do_not_displace_an_allowed_one() {
        let (mut decisions, now) = (DecisionCache::default(), Instant::now());
        decisions.remember("good", AccessDecision::Allowed, now);
        for n in 0..CACHE_CAPACITY * 4 {
            decisions.remember(&format!("bad {n}"), AccessDecision::Unauthenticated, now);
        }
        assert_eq!(
            decisions.look_up("good", source(1), now),
            CacheLookup::Cached(AccessDecision::Allowed)
        );
        assert!(decisions.len() <= CACHE_CAPACITY + 1);
    }

    #[test]
    fn unknown_tokens_are_rate_limited_by_source_and_in_all() {
        let (mut decisions, now) = (DecisionCache::default(), Instant::now());
        let reviewed = |decisions: &mut DecisionCache, from: u8, now| {
            (0..100)
                .filter(|n| {
                    let token = format!("{from} {n}");
                    decisions.look_up(&token, source(from), now) == CacheLookup::ReviewUnknownToken
                })
                .count()
        };
        assert_eq!(reviewed(&mut decisions, 1, now), 5);
        assert_eq!(reviewed(&mut decisions, 2, now), 5, "another source has a limit of its own");
        let rest: usize = (3..=250).map(|from| reviewed(&mut decisions, from, now)).sum();
        assert_eq!(rest, 40, "in all");
        let later = now + Duration::from_secs(4);
        assert_eq!(reviewed(&mut decisions, 1, later), 2);
    }

    #[test]
    fn token_that_was_allowed_is_exempt_from_rate_limits() {
        let (mut decisions, now) = (DecisionCache::default(), Instant::now());
        decisions.remember("good", AccessDecision::Allowed, now);
        let later = now + ALLOWED_FOR;
        for n in 0..100 {
            decisions.look_up(&format!("bad {n}"), source(1), later);
        }
        assert_eq!(decisions.look_up("bad", source(1), later), CacheLookup::RateLimited);
        assert_eq!(decisions.look_up("good", source(1), later), CacheLookup::ReviewKnownToken);
        decisions.remember("good", AccessDecision::Unauthenticated, later);
        let expected = CacheLookup::Cached(AccessDecision::Unauthenticated);
        assert_eq!(
            decisions.look_up("good", source(1), later),
            expected,
            "the permission was revoked"
        );
    }
}
