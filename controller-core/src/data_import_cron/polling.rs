//! When the source is polled next, and how the result changes the cron.

use api::annotations::cron as key;
use api::conditions::{self as wire, reason};
use api::v1beta1::DataImportCron;
use jiff::{SignedDuration, Timestamp};

use super::schedule::{Schedule, hash};
use super::source::Poller;
use crate::conditions::find;
use crate::meta::{self, Changes};

/// Delay after the first failure; doubles with each further one.
const AGAIN_FIRST: SignedDuration = SignedDuration::from_mins(1);
/// Upper limit of the delay: a cluster without egress polls once an hour.
const AGAIN_MAX: SignedDuration = SignedDuration::from_hours(1);

/// A finished poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    pub at: Timestamp,
    pub result: PollResult,
}

/// The result of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// The newest image.
    Newest {
        digest: String,
        /// Reference of the image in its ImageStream.
        image_stream_ref: Option<String>,
    },
    /// The newest image is the known one.
    Unchanged,
    Failed {
        /// Consecutive failures, including this one.
        failures: u32,
        /// Constant for a cause, so that a condition does not change with each poll.
        because: String,
    },
}

/// Why a poll has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollFailure {
    #[error("there is no claim {namespace}/{name}")]
    NoClaim { namespace: String, name: String },
    #[error("{because}")]
    NotPulled {
        /// Constant for a cause, so that a condition does not change with each poll.
        because: String,
    },
    #[error("the poll was cancelled")]
    Cancelled,
}

/// What a poll state means for the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Poll {
    /// The source has to be polled now.
    pub(super) is_due: bool,
    /// When it has to be polled.
    pub(super) next: Option<Timestamp>,
    /// Why the newest image is unknown.
    pub(super) failure: Option<String>,
}

/// `namespace/name`: the hash input that spreads the polls of crons.
pub fn place(cron: &DataImportCron) -> String {
    format!("{}/{}", meta::namespace(&cron.metadata), meta::name(&cron.metadata))
}

/// Delay after `failures` consecutive failures: grows with each one, with jitter per cron.
pub fn patience(failures: u32, place: &str) -> SignedDuration {
    let doubled = 2_i32.saturating_pow(failures.saturating_sub(1).min(30));
    let nominal = AGAIN_FIRST.checked_mul(doubled).unwrap_or(AGAIN_MAX).min(AGAIN_MAX);
    // Between three quarters and all of it.
    let quarter = nominal.as_secs().unsigned_abs() / 4;
    let less = i64::try_from(hash(place) % (quarter + 1)).unwrap_or_default();
    nominal - SignedDuration::from_secs(less)
}

/// Writes the result and the next time to annotations of the cron. A cron whose annotation with the next time is
/// missing, removed or invalid is polled at once.
pub(super) fn poll(
    cron: &DataImportCron,
    poller: Poller,
    polled: Option<&Polled>,
    now: Timestamp,
    changes: &mut Changes,
) -> Poll {
    let present = &cron.metadata;
    if matches!(poller, Poller::None | Poller::Job) {
        return Poll::default();
    }
    let Some(polled) = polled else {
        if is_over(cron) {
            return Poll { failure: known_failure(cron), ..Poll::default() };
        }
        let next = meta::annotation(present, key::NEXT_TIME).and_then(|text| text.parse().ok());
        let next: Timestamp = next.unwrap_or_else(|| {
            changes.set(present, key::NEXT_TIME, seconds(now));
            now
        });
        return Poll { is_due: next <= now, next: Some(next), failure: known_failure(cron) };
    };
    changes.set(present, key::LAST_TIME, seconds(polled.at));
    let schedule = Schedule::cached(&cron.spec.schedule).ok();
    let mut next = schedule.and_then(|schedule| schedule.next_for(&place(cron), polled.at));
    let failure = match &polled.result {
        PollResult::Newest { digest, image_stream_ref } => {
            changes.set(present, key::DESIRED_DIGEST, digest.as_str());
            changes.put(present, key::IMAGE_STREAM_DOCKER_REF, image_stream_ref.as_deref());
            None
        }
        PollResult::Unchanged => None,
        PollResult::Failed { failures, because } => {
            let again = polled.at.checked_add(patience(*failures, &place(cron))).ok();
            next = [next, again].into_iter().flatten().min();
            Some(because.clone())
        }
    };
    changes.put(present, key::NEXT_TIME, next.map(seconds).as_deref());
    Poll { is_due: false, next, failure }
}

/// Whether the source was polled and its schedule has no further time, as with a past year or the 30th of February. The
/// annotation with the next time is absent then, which must not mean "at once": that would poll in a loop.
fn is_over(cron: &DataImportCron) -> bool {
    let noted = |key| meta::annotation(&cron.metadata, key);
    let last: Option<Timestamp> = noted(key::LAST_TIME).and_then(|text| text.parse().ok());
    let (Some(last), None) = (last, noted(key::NEXT_TIME)) else { return false };
    Schedule::cached(&cron.spec.schedule).is_ok_and(|schedule| schedule.next(last).is_none())
}

/// The message of the last poll, if it failed.
fn known_failure(cron: &DataImportCron) -> Option<String> {
    let conditions = cron.status.as_ref()?.conditions.as_deref()?;
    let known = find(conditions, wire::UP_TO_DATE)?;
    let failed = known.reason.as_deref() == Some(reason::POLL_FAILED);
    failed.then(|| known.message.clone().unwrap_or_default())
}

/// Format of times in annotations: RFC 3339, to the second.
pub(super) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
