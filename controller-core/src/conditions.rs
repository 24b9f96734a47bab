//! Status conditions with the times of their last changes.

use api::v1beta1::Condition;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A condition without its type and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionState {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// In CamelCase; may be empty.
    pub reason: String,
    /// For users; may be empty.
    pub message: String,
}

impl ConditionState {
    pub fn new(
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }
}

pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets the condition `type_`, and returns whether it changed. The transition time changes with the status, the
/// heartbeat with any change.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    state: &ConditionState,
    now: Timestamp,
) -> bool {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (reason, message) = (text(&state.reason), text(&state.message));
    let now = Some(Time(now));
    let Some(known) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(Condition {
            type_: type_.into(),
            status: state.status.into(),
            last_transition_time: now.clone(),
            last_heartbeat_time: now,
            reason,
            message,
        });
        return true;
    };
    // The API server may return an empty text instead of none.
    let same = |known: &Option<String>, new: &Option<String>| {
        known.as_deref().unwrap_or_default() == new.as_deref().unwrap_or_default()
    };
    if known.status == state.status
        && same(&known.reason, &reason)
        && same(&known.message, &message)
    {
        return false;
    }
    if known.status != state.status {
        known.status = state.status.into();
        known.last_transition_time.clone_from(&now);
    }
    (known.reason, known.message, known.last_heartbeat_time) = (reason, message, now);
    true
}

#[cfg(test)]
mod tests {
    use api::conditions::status::{FALSE, TRUE};

    use super::*;

    #[test]
    fn condition_times_change_only_with_the_condition() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        let times = |conditions: &[Condition]| {
            let condition = &conditions[0];
            let second = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
            (second(&condition.last_transition_time), second(&condition.last_heartbeat_time))
        };
        for (second, state, changed, expected) in [
            (1, ConditionState::new(FALSE, "Pending", "waits"), true, (1, 1)),
            (2, ConditionState::new(FALSE, "Pending", "waits"), false, (1, 1)),
            (3, ConditionState::new(FALSE, "Pending", "waits still"), true, (1, 3)),
            (4, ConditionState::new(TRUE, "Bound", ""), true, (4, 4)),
            (5, ConditionState::new(TRUE, "Bound", ""), false, (4, 4)),
            (6, ConditionState::new(TRUE, "", ""), true, (4, 6)),
        ] {
            assert_eq!(set(&mut conditions, "Bound", &state, at(second)), changed, "{second}");
            assert_eq!(times(&conditions), expected, "{second}");
        }
        assert_eq!(conditions.len(), 1);
        assert_eq!(find(&conditions, "Bound").unwrap().reason, None);
    }
}
