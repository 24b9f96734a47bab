//! Conditions of DataVolumes, and the events about them.

use super::*;

#[test]
fn blocker_is_reported_in_the_conditions_and_one_event() {
    let mut case = Case::import(PopulationMode::Populator, "");
    case.blocker = Some(PvcBlocker::invalid(&crate::claim::Error::NoClass));
    let text =
        "DataVolume.storage spec is missing accessMode and no storageClass to choose profile";
    assert_eq!(case.phase(), "");
    for type_ in ["Bound", "Ready"] {
        let expected = ("False".into(), "ErrClaimNotValid".into(), text.into());
        assert_eq!(case.condition(type_), expected, "{type_}");
    }
    assert_eq!(case.write(), [Event::warning("ErrClaimNotValid", text)]);
    assert_eq!(case.write(), [], "one event only");

    let quota = "persistentvolumeclaims \"disk\" is forbidden: exceeded quota: tight";
    case.blocker = PvcBlocker::refused(&refusal(403, quota));
    assert_eq!(case.phase(), "Pending");
    assert_eq!(case.condition("Bound").1, "ErrExceededQuota");
    assert_eq!(case.condition("Ready"), ("False".into(), "ErrExceededQuota".into(), quota.into()));
    assert_eq!(case.write(), [Event::warning("ErrExceededQuota", quota)]);
    assert_eq!(PvcBlocker::refused(&refusal(500, "connection refused")), None);

    // The quota was raised.
    case.blocker = None;
    case.claim = Some(claim("Pending", json!({})));
    assert_eq!(
        case.condition("Bound"),
        ("False".into(), "Pending".into(), "PVC disk Pending".into())
    );
    assert_eq!(case.condition("Ready"), ("False".into(), String::new(), String::new()));
}

#[test]
fn bound_reports_the_pvc_and_its_prime_pvc() {
    let mut case = Case::import(PopulationMode::Populator, "Pending");
    let is = |status: &str, reason: &str, message: &str| {
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    assert_eq!(case.condition("Bound"), is("False", "NotFound", "No PVC found"));
    let noted = |reason: &str, message: &str| json!({ state::BOUND: "false", state::BOUND_REASON: reason, state::BOUND_MESSAGE: message });
    for (claim, expected) in [
        (claim("Pending", json!({})), is("False", "Pending", "PVC disk Pending")),
        (
            claim("Pending", noted("Pending", "[prime-1] : waiting for a volume")),
            is("False", "Pending", "target PVC disk Pending and [prime-1] : waiting for a volume"),
        ),
        (claim("Bound", json!({})), is("True", "Bound", "PVC disk Bound")),
        (claim("Bound", json!({ state::BOUND: "true" })), is("True", "Bound", "PVC disk Bound")),
        (
            claim("Bound", noted("CreatingScratchSpace", "Creating scratch space")),
            is("False", "CreatingScratchSpace", "Creating scratch space"),
        ),
        (claim("Lost", json!({})), is("False", "ClaimLost", "Claim Lost")),
    ] {
        case.claim = Some(claim);
        assert_eq!(case.condition("Bound"), expected);
    }
}

#[test]
fn running_combines_target_and_source_pods() {
    let condition = |target: Option<&str>, source: Option<&str>| {
        let mut pairs = serde_json::Map::new();
        for (key, value) in [
            (state::RUNNING, target),
            (state::RUNNING_REASON, target.map(|_| "tr")),
            (state::RUNNING_MESSAGE, target.map(|_| "tm")),
            (state::SOURCE_RUNNING, source),
            (state::SOURCE_RUNNING_REASON, source.map(|_| "sr")),
            (state::SOURCE_RUNNING_MESSAGE, source.map(|_| "sm")),
        ] {
            if let Some(value) = value {
                pairs.insert(key.to_owned(), value.into());
            }
        }
        let mut case = Case::import(PopulationMode::Legacy, "PVCBound");
        case.claim = Some(claim("Bound", pairs.into()));
        case.condition("Running")
    };
    let (yes, no) = (Some("true"), Some("false"));
    for (target, source, status, reason, message) in [
        (None, None, "False", "", ""),
        (None, yes, "False", "", ""),
        (yes, None, "True", "tr", "tm"),
        (yes, yes, "True", "tr", "tm"),
        (yes, no, "False", "sr", "sm"),
        (no, None, "False", "tr", "tm"),
        (no, yes, "False", "tr", "tm"),
        (no, no, "False", "tr and sr", "tm and sm"),
        (Some("odd"), None, "Unknown", "tr", "tm"),
        (yes, Some("odd"), "Unknown", "tr", "tm"),
    ] {
        let expected = (status.to_owned(), reason.to_owned(), message.to_owned());
        assert_eq!(condition(target, source), expected, "{target:?} {source:?}");
    }

    let mut case = Case::import(PopulationMode::Legacy, "ImportScheduled");
    case.claim =
        Some(claim("Bound", json!({ state::POD_SCHEDULABLE: "false", state::RUNNING: "true" })));
    let stuck = ("False".into(), "Unschedulable".into(), "Importer pod cannot be scheduled".into());
    assert_eq!(case.condition("Running"), stuck);
    case.claim = Some(claim(
        "Bound",
        json!({
            state::POD_SCHEDULABLE: "false", state::RUNNING: "false",
            state::RUNNING_REASON: "Unschedulable", state::RUNNING_MESSAGE: "too few nodes",
        }),
    ));
    let (_, _, message) = case.condition("Running");
    assert_eq!(message, "Importer pod cannot be scheduled: too few nodes");
}

#[test]
fn ready_condition_table() {
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned(), String::new());
    for (phase, annotations, expected) in [
        ("Bound", json!({ state::POD_PHASE: "Succeeded" }), is("True", "")),
        (
            "Bound",
            json!({ state::POD_PHASE: "Succeeded", state::RUNNING: "true" }),
            is("False", "TransferRunning"),
        ),
        ("Pending", json!({ state::RUNNING: "true" }), is("False", "TransferRunning")),
        ("Bound", json!({ state::RUNNING: "false" }), is("False", "")),
        ("Pending", json!({ request::POPULATED_FOR: "disk" }), is("False", "")),
        ("Odd", json!({}), is("False", "")),
        ("Bound", json!({}), is("False", "")),
    ] {
        let mut case = Case::import(PopulationMode::Legacy, "PVCBound");
        case.claim = Some(claim(phase, annotations));
        assert_eq!(case.condition("Ready"), expected, "{phase}");
    }
}

#[test]
fn ready_names_a_missing_clone_source() {
    let mut case = Case::import(PopulationMode::Populator, "Pending");
    let message = "The source pvc golden doesn't exist";
    case.blocker = Some(PvcBlocker::of_source(Event::warning("CloneWithoutSource", message)));
    let expected = ("False".into(), "CloneWithoutSource".into(), message.into());
    assert_eq!(case.condition("Ready"), expected);
}

#[test]
fn failure_event_has_the_message_of_the_worker() {
    let failed = |message: &str| {
        let annotations = json!({
            import::POD_NAME: "p", state::POD_PHASE: "Running", state::RUNNING: "false",
            state::RUNNING_REASON: "Error", state::RUNNING_MESSAGE: message,
        });
        claim("Bound", annotations)
    };
    let mut case = Case::import(PopulationMode::Legacy, "ImportInProgress");
    case.claim = Some(failed("404 Not Found"));
    assert!(case.write().contains(&Event::warning("Error", "404 Not Found")));
    assert_eq!(case.write(), []);
    case.claim = Some(failed("scratch space required and none found"));
    assert!(case.write().iter().all(|event| event.kind == "Normal"));
    case.claim = Some(failed("403 Forbidden"));
    assert_eq!(case.write(), [Event::warning("Error", "403 Forbidden")]);
}
