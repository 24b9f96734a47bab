//! A driver that was asked to clone, and does not.
//!
//! Drivers are asked again and again by whoever asks them, so that a failure alone says little: it may be gone the next
//! time. Two things end the waiting: an answer that no repetition changes, and time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::reason::Fallback;
use crate::bound::Seen;

/// How long a driver has for one phase of a clone, unless its StorageProfile says otherwise.
const PATIENCE: Duration = Duration::from_secs(600);

/// Answers that stay the same however often one asks: what gRPC calls so, and what the provisioner beside a driver says of
/// one that never promised to clone.
const FINAL: [&str; 4] = [
    "code = Unimplemented",
    "code = InvalidArgument",
    "code = OutOfRange",
    "CSI driver does not support",
];

/// How long a driver has, from the StorageProfile's annotation `cdi.kubevirt.io/cloneFallbackAfter`: seconds, or minutes with
/// an `m` behind. `None`: as long as it takes, for `never`, where a copy is not wanted. What cannot be read counts as not
/// said.
pub fn patience(said: Option<&str>) -> Option<Duration> {
    let Some(text) = said.map(str::trim) else { return Some(PATIENCE) };
    if text == "never" {
        return None;
    }
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let count = digits.parse::<u32>().ok().filter(|count| *count > 0);
    Some(count.map_or(PATIENCE, |count| Duration::from_secs(u64::from(count) * unit)))
}

/// Whether something that the driver was asked for at `since` is to be waited for no longer, and why. `complaints` are what
/// it has said since.
pub(super) fn given_up<'a>(
    patience: Option<Duration>,
    since: Option<Timestamp>,
    now: Timestamp,
    mut complaints: impl Iterator<Item = &'a str>,
) -> Option<Fallback> {
    let patience = patience?;
    let is_final = |text: &&str| FINAL.iter().any(|words| text.contains(words));
    if let Some(said) = complaints.find(is_final) {
        return Some(Fallback::refused(said));
    }
    let waited = now.duration_since(since?);
    let is_over = waited >= SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    is_over.then_some(Fallback::DriverTooSlow { waited: patience })
}

/// What was told of a claim that is not bound, as far as it is a complaint.
pub(super) fn complaints(told: &[Seen]) -> impl Iterator<Item = &str> {
    let is_complaint = |seen: &&Seen| seen.event.kind == api::events::kind::WARNING;
    told.iter().filter(is_complaint).map(|seen| seen.event.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_says_how_long_a_driver_has() {
        for (said, seconds) in [
            (None, Some(600)),
            (Some("never"), None),
            (Some("90"), Some(90)),
            (Some("90s"), Some(90)),
            (Some(" 5m "), Some(300)),
            (Some("0"), Some(600)),
            (Some("soon"), Some(600)),
            (Some("-1m"), Some(600)),
        ] {
            assert_eq!(patience(said), seconds.map(Duration::from_secs), "{said:?}");
        }
    }

    #[test]
    fn only_time_or_a_final_answer_ends_the_waiting() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let patience = Some(Duration::from_secs(100));
        let check = |now: i64, complaints: &[&str]| {
            given_up(patience, Some(at(1000)), at(now), complaints.iter().copied())
                .map(|why| why.to_string())
        };
        assert_eq!(check(1099, &[]), None);
        assert_eq!(check(900, &[]), None, "clocks differ");
        let slow = "The storage driver did not clone within 100 s";
        assert_eq!(check(1100, &[]).as_deref(), Some(slow));
        let busy = "rpc error: code = ResourceExhausted desc = later";
        assert_eq!(check(1099, &[busy]), None);
        let no = "rpc error: code = Unimplemented desc = no clones";
        let refused = format!("The storage driver refused to clone: {no}");
        assert_eq!(check(1001, &[busy, no]), Some(refused));
        let never = "CSI driver does not support clone operations: CLONE_VOLUME is not reported";
        assert_eq!(
            check(1001, &[never]),
            Some(format!("The storage driver refused to clone: {never}"))
        );
        assert_eq!(given_up(None, Some(at(0)), at(i64::from(u32::MAX)), [no].into_iter()), None);
        assert_eq!(given_up(patience, None, at(5000), [busy].into_iter()), None);
    }
}
