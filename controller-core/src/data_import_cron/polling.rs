//! When the source is asked next, and what follows from its answer.

use api::annotations::cron as key;
use api::conditions::{self as wire, reason};
use api::v1beta1::DataImportCron;
use jiff::{SignedDuration, Timestamp};

use super::schedule::{Schedule, hash};
use super::source::Poller;
use crate::conditions::find;
use crate::meta::{self, Changes};

/// After the first failure; doubles from there.
const AGAIN_FIRST: SignedDuration = SignedDuration::from_mins(1);
/// Where the doubling ends: a cluster without a way out asks once an hour, and says no more than that.
const AGAIN_MAX: SignedDuration = SignedDuration::from_hours(1);

/// The source was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// When.
    pub at: Timestamp,
    pub result: PollResult,
}

/// What a source said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// Its newest image is this one.
    Newest {
        /// Digest.
        digest: String,
        /// Where an ImageStream has it.
        image_stream_ref: Option<String>,
    },
    /// Its newest image is the one that was known.
    Unchanged,
    /// Nothing that would help.
    Failed {
        /// How often in a row, this one included.
        failures: u32,
        /// Why. The same words for the same reason, so that a condition does not change each time.
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
    /// The poll was cancelled.
    #[error("the question broke off")]
    BrokenOff,
}

/// What follows for the cron.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Poll {
    /// The source has to be asked now.
    pub(super) is_due: bool,
    /// When it has to be asked.
    pub(super) next: Option<Timestamp>,
    /// Why nobody knows what the newest image is.
    pub(super) failure: Option<String>,
}

/// `namespace/name`, which spreads crons.
pub fn place(cron: &DataImportCron) -> String {
    format!("{}/{}", meta::namespace(&cron.metadata), meta::name(&cron.metadata))
}

/// How long to wait after so many failures in a row: longer each time, and for each cron a little different.
pub fn patience(failures: u32, place: &str) -> SignedDuration {
    let doubled = 2_i32.saturating_pow(failures.saturating_sub(1).min(30));
    let nominal = AGAIN_FIRST.checked_mul(doubled).unwrap_or(AGAIN_MAX).min(AGAIN_MAX);
    // Between three quarters and the whole of it.
    let quarter = nominal.as_secs().unsigned_abs() / 4;
    let less = i64::try_from(hash(place) % (quarter + 1)).unwrap_or_default();
    nominal - SignedDuration::from_secs(less)
}

/// Notes the answer and the next time on the cron. A cron whose next time is not said, or cannot be read, is asked for at
/// once; so is one where somebody has taken it away.
pub(super) fn poll(
    cron: &DataImportCron,
    poller: Poller,
    polled: Option<&Polled>,
    now: Timestamp,
    changes: &mut Changes,
) -> Poll {
    let present = &cron.metadata;
    if matches!(poller, Poller::Nobody | Poller::Job) {
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

/// Whether the source was asked, and its schedule never comes again: that of a year that is over, or of the 30th of
/// February. No next time is noted then, and whoever took that for "at once" would ask without end.
fn is_over(cron: &DataImportCron) -> bool {
    let noted = |key| meta::annotation(&cron.metadata, key);
    let last: Option<Timestamp> = noted(key::LAST_TIME).and_then(|text| text.parse().ok());
    let (Some(last), None) = (last, noted(key::NEXT_TIME)) else { return false };
    Schedule::cached(&cron.spec.schedule).is_ok_and(|schedule| schedule.next(last).is_none())
}

/// What was said of the last attempt, if that failed.
fn known_failure(cron: &DataImportCron) -> Option<String> {
    let conditions = cron.status.as_ref()?.conditions.as_deref()?;
    let known = find(conditions, wire::UP_TO_DATE)?;
    let failed = known.reason.as_deref() == Some(reason::POLL_FAILED);
    failed.then(|| known.message.clone().unwrap_or_default())
}

/// A time as annotations have it: RFC 3339, to the second.
pub(super) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
