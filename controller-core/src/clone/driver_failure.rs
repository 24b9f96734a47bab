//! Failures of a storage driver to clone.
//!
//! The external provisioner retries failed requests to the driver, so most errors may be temporary. The wait ends with
//! an error that no retry changes, or after a timeout.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::reason::Fallback;
use crate::bound::ObservedEvent;

/// Default timeout of a driver for one phase of a clone.
const PATIENCE: Duration = Duration::from_secs(600);

/// Errors that no retry changes: gRPC codes, and the message of the external provisioner about a driver without the
/// capability to clone.
const FINAL: [&str; 4] = [
    "code = Unimplemented",
    "code = InvalidArgument",
    "code = OutOfRange",
    "CSI driver does not support",
];

/// Timeout of a driver, from the StorageProfile's annotation `cdi.kubevirt.io/cloneFallbackAfter`: seconds, or minutes
/// with the suffix `m`. `None`: no timeout and no copy, for `never`. The default applies to invalid values.
pub fn patience(annotation: Option<&str>) -> Option<Duration> {
    let Some(text) = annotation.map(str::trim) else { return Some(PATIENCE) };
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

/// Why a copy has to replace a request to the driver that was created at `since`. `None`: wait for the driver.
/// `messages` are the errors that it has reported since.
pub(super) fn fallback_reason<'a>(
    patience: Option<Duration>,
    since: Option<Timestamp>,
    now: Timestamp,
    mut messages: impl Iterator<Item = &'a str>,
) -> Option<Fallback> {
    let patience = patience?;
    let is_final = |text: &&str| FINAL.iter().any(|part| text.contains(part));
    if let Some(message) = messages.find(is_final) {
        return Some(Fallback::refused(message));
    }
    let waited = now.duration_since(since?);
    let is_over = waited >= SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    is_over.then_some(Fallback::DriverTooSlow { waited: patience })
}

/// Messages of the warnings among the events of a PVC.
pub(super) fn warning_messages(events: &[ObservedEvent]) -> impl Iterator<Item = &str> {
    let is_warning = |seen: &&ObservedEvent| seen.event.kind == api::events::kind::WARNING;
    events.iter().filter(is_warning).map(|seen| seen.event.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_timeout_of_the_storage_profile_table() {
        for (annotation, seconds) in [
            (None, Some(600)),
            (Some("never"), None),
            (Some("90"), Some(90)),
            (Some("90s"), Some(90)),
            (Some(" 5m "), Some(300)),
            (Some("0"), Some(600)),
            (Some("soon"), Some(600)),
            (Some("-1m"), Some(600)),
        ] {
            assert_eq!(patience(annotation), seconds.map(Duration::from_secs), "{annotation:?}");
        }
    }

    #[test]
    fn only_a_timeout_or_a_final_error_ends_the_wait() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let patience = Some(Duration::from_secs(100));
        let check = |now: i64, messages: &[&str]| {
            fallback_reason(patience, Some(at(1000)), at(now), messages.iter().copied())
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
        assert_eq!(
            fallback_reason(None, Some(at(0)), at(i64::from(u32::MAX)), [no].into_iter()),
            None
        );
        assert_eq!(fallback_reason(patience, None, at(5000), [busy].into_iter()), None);
    }
}
