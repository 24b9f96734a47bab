//! The status of the CDI object: phase, versions and conditions, as HyperConverged and `kubectl wait` read them.

use api::conditions::{self, status};
use jiff::Timestamp;
use serde_json::{Value, json};

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Deploying,
    Deployed,
    Upgrading,
    Deleting,
    Deleted,
    Error,
    /// Of another operator's version.
    Other,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deploying => "Deploying",
            Self::Deployed => "Deployed",
            Self::Upgrading => "Upgrading",
            Self::Deleting => "Deleting",
            Self::Deleted => "Deleted",
            Self::Error => "Error",
            Self::Other => "",
        }
    }

    /// `None` before the first status.
    pub fn of_installation(installation: &Value) -> Option<Self> {
        let text = installation["status"]["phase"].as_str().filter(|text| !text.is_empty())?;
        let known = [
            Self::Deploying,
            Self::Deployed,
            Self::Upgrading,
            Self::Deleting,
            Self::Deleted,
            Self::Error,
        ];
        Some(known.into_iter().find(|phase| phase.as_str() == text).unwrap_or(Self::Other))
    }
}

pub mod reason {
    pub const DEPLOY_STARTED: &str = "DeployStarted";
    pub const DEPLOY_COMPLETED: &str = "DeployCompleted";
    pub const UPGRADE_STARTED: &str = "UpgradeStarted";
    pub const CONFIG_ERROR: &str = "ConfigError";
    /// The objects to install cannot be computed from the CDI object.
    pub const CREATE_RESOURCES: &str = "CreateResources";
}

pub const DEGRADED: &str = "Degraded";

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

impl ConditionState {
    pub fn plain(is_true: bool) -> Self {
        Self { is_true, reason: String::new(), message: String::new() }
    }

    pub fn with_reason(is_true: bool, reason: &str, message: impl Into<String>) -> Self {
        Self { is_true, reason: reason.to_owned(), message: message.into() }
    }
}

/// The three conditions that every status has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub available: ConditionState,
    pub progressing: ConditionState,
    pub degraded: ConditionState,
}

impl Health {
    pub fn deploying() -> Self {
        Self {
            available: ConditionState::plain(false),
            progressing: ConditionState::with_reason(
                true,
                reason::DEPLOY_STARTED,
                "Started Deployment",
            ),
            degraded: ConditionState::plain(false),
        }
    }

    pub fn deployed() -> Self {
        Self {
            available: ConditionState::with_reason(
                true,
                reason::DEPLOY_COMPLETED,
                "Deployment Completed",
            ),
            progressing: ConditionState::plain(false),
            degraded: ConditionState::plain(false),
        }
    }

    pub fn upgrading(version: &str) -> Self {
        Self {
            available: ConditionState::plain(true),
            progressing: ConditionState::plain(true),
            degraded: ConditionState::with_reason(
                true,
                reason::UPGRADE_STARTED,
                upgrade_message(version),
            ),
        }
    }

    pub fn rejected(message: &str) -> Self {
        Self {
            available: ConditionState::plain(false),
            progressing: ConditionState::plain(false),
            degraded: ConditionState::with_reason(true, reason::CONFIG_ERROR, message),
        }
    }

    /// Some objects cannot be computed, such as one with a patch that does not fit.
    pub fn not_rendered(message: String) -> Self {
        Self {
            available: ConditionState::plain(false),
            progressing: ConditionState::plain(true),
            degraded: ConditionState::with_reason(true, reason::CREATE_RESOURCES, message),
        }
    }
}

pub fn upgrade_message(version: &str) -> String {
    format!("Started upgrade to version {version}")
}

/// `status.operatorVersion`, `targetVersion` and `observedVersion`. `None` leaves a version as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions<'a> {
    pub operator: Option<&'a str>,
    pub target: Option<&'a str>,
    pub observed: Option<&'a str>,
}

impl<'a> Versions<'a> {
    /// At the start of an installation or upgrade.
    pub fn started(version: &'a str) -> Self {
        Self { operator: Some(version), target: Some(version), observed: None }
    }

    pub fn completed(version: &'a str) -> Self {
        Self { observed: Some(version), ..Self::started(version) }
    }
}

/// Writes phase, versions and conditions into the object. Fields and conditions of other writers stay, and so does
/// everything that is equal: an unchanged status is not written again.
pub fn set_status(
    installation: &mut Value,
    phase: Option<Phase>,
    versions: &Versions,
    health: Option<&Health>,
    now: Timestamp,
) {
    if !installation["status"].is_object() {
        installation["status"] = json!({});
    }
    let status = &mut installation["status"];
    if let Some(phase) = phase {
        status["phase"] = phase.as_str().into();
    }
    let Versions { operator, target, observed } = versions;
    for (field, version) in
        [("operatorVersion", operator), ("targetVersion", target), ("observedVersion", observed)]
    {
        if let Some(version) = version {
            status[field] = (*version).into();
        }
    }
    let Some(Health { available, progressing, degraded }) = health else { return };
    for (type_, state) in [
        (conditions::AVAILABLE, available),
        (conditions::PROGRESSING, progressing),
        (DEGRADED, degraded),
    ] {
        set_condition(status, type_, state, now);
    }
}

fn set_condition(status: &mut Value, type_: &str, state: &ConditionState, now: Timestamp) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let now = rfc3339(now);
    let value = if state.is_true { status::TRUE } else { status::FALSE };
    let all = status["conditions"].as_array_mut().expect("it was just made an array");
    let index = match all.iter().position(|one| one["type"] == type_) {
        Some(index) => index,
        None => {
            all.push(json!({ "type": type_ }));
            all.len() - 1
        }
    };
    let condition = &mut all[index];
    let text =
        |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let is_same = condition["status"] == value
        && text(condition, "reason") == state.reason
        && text(condition, "message") == state.message;
    if is_same {
        return;
    }
    if condition["status"] != value {
        condition["status"] = value.into();
        condition["lastTransitionTime"] = now.clone().into();
    }
    condition["lastHeartbeatTime"] = now.into();
    for (field, text) in [("reason", &state.reason), ("message", &state.message)] {
        let fields = condition.as_object_mut().expect("conditions are objects");
        if text.is_empty() {
            fields.remove(field);
        } else {
            fields.insert(field.to_owned(), text.as_str().into());
        }
    }
}

/// Kubernetes' times have whole seconds.
pub fn rfc3339(moment: Timestamp) -> String {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn conditions(installation: &Value) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = installation["status"]["conditions"].as_array().unwrap();
        all.iter()
            .map(|one| (text(&one["type"]), text(&one["status"]), text(&one["reason"])))
            .collect()
    }

    #[test]
    fn conditions_follow_the_phase_table() {
        let rejected = Health::rejected("why");
        for (health, expected) in [
            (Health::deploying(), [("False", ""), ("True", "DeployStarted"), ("False", "")]),
            (Health::deployed(), [("True", "DeployCompleted"), ("False", ""), ("False", "")]),
            (Health::upgrading("1"), [("True", ""), ("True", ""), ("True", "UpgradeStarted")]),
            (rejected, [("False", ""), ("False", ""), ("True", "ConfigError")]),
            (
                Health::not_rendered("a".into()),
                [("False", ""), ("True", ""), ("True", "CreateResources")],
            ),
        ] {
            let mut cdi = json!({});
            set_status(&mut cdi, None, &Versions::default(), Some(&health), at(0));
            let types = ["Available", "Progressing", "Degraded"];
            let expected: Vec<_> = types
                .into_iter()
                .zip(expected)
                .map(|(type_, (status, reason))| (type_.into(), status.into(), reason.into()))
                .collect();
            assert_eq!(conditions(&cdi), expected);
        }
    }

    #[test]
    fn unchanged_status_keeps_its_times_and_unknown_parts_stay() {
        let mut cdi = json!({ "status": {
            "phase": "Deploying", "foreign": 1,
            "conditions": [{ "type": "Mine", "status": "True" }],
        } });
        let versions = Versions::completed("1.0.0");
        set_status(&mut cdi, Some(Phase::Deployed), &versions, Some(&Health::deployed()), at(0));
        let first = cdi.clone();
        set_status(&mut cdi, Some(Phase::Deployed), &versions, Some(&Health::deployed()), at(60));
        assert_eq!(cdi, first);
        assert_eq!(cdi["status"]["foreign"], 1);
        assert_eq!(cdi["status"]["conditions"][0], json!({ "type": "Mine", "status": "True" }));
        assert_eq!(cdi["status"]["observedVersion"], "1.0.0");

        let mut degraded = Health::deployed();
        degraded.degraded = ConditionState::plain(true);
        set_status(&mut cdi, None, &Versions::default(), Some(&degraded), at(90));
        let condition = &cdi["status"]["conditions"][3];
        assert_eq!(condition["lastTransitionTime"], "2027-01-15T08:01:30Z");
        let available = &cdi["status"]["conditions"][1];
        assert_eq!(available["lastTransitionTime"], "2027-01-15T08:00:00Z");
    }

    #[test]
    fn phase_of_another_operator_is_not_empty() {
        let phase = |phase: &str| Phase::of_installation(&json!({ "status": { "phase": phase } }));
        assert_eq!(phase(""), None);
        assert_eq!(phase("Deployed"), Some(Phase::Deployed));
        assert_eq!(phase("Paused"), Some(Phase::Other));
    }
}
