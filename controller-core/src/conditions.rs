//! Conditions that remember when they changed.

use api::v1beta1::Condition;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What is to be said now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word, or nothing.
    pub reason: String,
    /// A sentence, or nothing.
    pub message: String,
}

impl Said {
    /// A condition without times.
    pub fn new(
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }
}

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Notes what is to be said of `type_`. The transition's time moves with the status, the heartbeat with any change, and
/// what has not changed stays to the letter. Whether it changed is the answer.
pub fn set(conditions: &mut Vec<Condition>, type_: &str, said: &Said, now: Timestamp) -> bool {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (reason, message) = (text(&said.reason), text(&said.message));
    let now = Some(Time(now));
    let Some(known) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        conditions.push(Condition {
            type_: type_.into(),
            status: said.status.into(),
            last_transition_time: now.clone(),
            last_heartbeat_time: now,
            reason,
            message,
        });
        return true;
    };
    // The API server may hand out an empty text for none.
    let same = |known: &Option<String>, said: &Option<String>| {
        known.as_deref().unwrap_or_default() == said.as_deref().unwrap_or_default()
    };
    if known.status == said.status && same(&known.reason, &reason) && same(&known.message, &message)
    {
        return false;
    }
    if known.status != said.status {
        known.status = said.status.into();
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
    fn times_move_only_with_what_they_are_the_times_of() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        let times = |conditions: &[Condition]| {
            let condition = &conditions[0];
            let second = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
            (second(&condition.last_transition_time), second(&condition.last_heartbeat_time))
        };
        for (second, said, changed, expected) in [
            (1, Said::new(FALSE, "Pending", "waits"), true, (1, 1)),
            (2, Said::new(FALSE, "Pending", "waits"), false, (1, 1)),
            (3, Said::new(FALSE, "Pending", "waits still"), true, (1, 3)),
            (4, Said::new(TRUE, "Bound", ""), true, (4, 4)),
            (5, Said::new(TRUE, "Bound", ""), false, (4, 4)),
            (6, Said::new(TRUE, "", ""), true, (4, 6)),
        ] {
            assert_eq!(set(&mut conditions, "Bound", &said, at(second)), changed, "{second}");
            assert_eq!(times(&conditions), expected, "{second}");
        }
        assert_eq!(conditions.len(), 1);
        assert_eq!(find(&conditions, "Bound").unwrap().reason, None);
    }
}
