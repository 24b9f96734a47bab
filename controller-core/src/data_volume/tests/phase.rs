//! The table of phases.

use super::*;

#[test]
fn the_phase_follows_the_claim() {
    let (legacy, populator) = (PopulationMode::Legacy, PopulationMode::Populator);
    let filled = |case: &mut Case, phase: &str| {
        case.claim = Some(claim(phase, json!({ request::POPULATED_FOR: "disk" })));
    };
    let table: Vec<(&str, PopulationMode, &str, Box<dyn Fn(&mut Case)>, &str)> = vec![
        ("nothing yet", legacy, "", Box::new(|_| ()), "Pending"),
        ("claim vanished", legacy, "ImportInProgress", Box::new(|_| ()), "ImportInProgress"),
        ("static", legacy, "PVCBound", Box::new(|c| c.is_static = true), "Pending"),
        (
            "filled elsewhere, no claim",
            legacy,
            "PVCBound",
            Box::new(|c| {
                let pairs = meta::Pairs::from([(request::PRE_POPULATED.into(), "disk".into())]);
                c.volume.metadata.annotations = Some(pairs);
            }),
            "Pending",
        ),
        (
            "claim terminating",
            legacy,
            "ImportInProgress",
            Box::new(|c| {
                let mut claim = worked_on("Bound", "Succeeded");
                claim.metadata.deletion_timestamp =
                    serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
                c.claim = Some(claim);
            }),
            "ImportInProgress",
        ),
        ("filled, bound", legacy, "", Box::new(move |c| filled(c, "Bound")), "Succeeded"),
        ("filled, pending", legacy, "", Box::new(move |c| filled(c, "Pending")), "Succeeded"),
        ("lost", legacy, "Succeeded", Box::new(move |c| filled(c, "Lost")), "Failed"),
        ("odd", legacy, "", Box::new(|c| c.claim = Some(claim("Odd", json!({})))), "Unknown"),
        (
            "pending",
            legacy,
            "",
            Box::new(|c| c.claim = Some(claim("Pending", json!({})))),
            "Pending",
        ),
        (
            "waits",
            legacy,
            "Pending",
            Box::new(|c| {
                c.waits = true;
                c.claim = Some(claim("Pending", json!({})));
            }),
            "WaitForFirstConsumer",
        ),
        (
            "waits, gate closed",
            legacy,
            "Pending",
            Box::new(|c| {
                (c.waits, c.gate) = (true, false);
                c.claim = Some(claim("Pending", json!({})));
            }),
            "Pending",
        ),
        (
            "waits, at once wanted",
            legacy,
            "Pending",
            Box::new(|c| {
                c.waits = true;
                c.claim = Some(claim("Pending", json!({ request::BIND_IMMEDIATE: "" })));
            }),
            "Pending",
        ),
        (
            "waits for population",
            populator,
            "Pending",
            Box::new(|c| {
                (c.waits, c.gate) = (true, false);
                c.claim = Some(claim("Pending", json!({})));
            }),
            "PendingPopulation",
        ),
        (
            "node known",
            populator,
            "PendingPopulation",
            Box::new(|c| {
                c.waits = true;
                c.claim = Some(claim("Pending", json!({ request::SELECTED_NODE: "n" })));
            }),
            "PendingPopulation",
        ),
        (
            "prime PVC, not bound",
            populator,
            "Pending",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({})));
                c.prime = Some(worked_on("Pending", ""));
            }),
            "Pending",
        ),
        (
            "prime PVC, bound",
            populator,
            "Pending",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({})));
                c.prime = Some(worked_on("Bound", ""));
            }),
            "ImportScheduled",
        ),
        (
            "prime PVC, running",
            populator,
            "ImportScheduled",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({ state::POD_PHASE: "Running" })));
                c.prime = Some(worked_on("Bound", "Running"));
            }),
            "ImportInProgress",
        ),
        (
            "prime PVC, done, not rebound yet",
            populator,
            "ImportInProgress",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({ state::POD_PHASE: "Succeeded" })));
                c.prime = Some(worked_on("Bound", "Succeeded"));
            }),
            "ImportInProgress",
        ),
        (
            "done at once, not rebound yet",
            populator,
            "PendingPopulation",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({ state::POD_PHASE: "Succeeded" })))
            }),
            "ImportScheduled",
        ),
        (
            "rebound, an old warning still recorded",
            populator,
            "ImportInProgress",
            Box::new(|c| {
                let notes = json!({ state::POD_PHASE: "Succeeded", state::BOUND: "false" });
                c.claim = Some(claim("Bound", notes));
            }),
            "ImportInProgress",
        ),
        (
            "prime PVC, rebound",
            populator,
            "ImportInProgress",
            Box::new(|c| c.claim = Some(claim("Bound", json!({ state::POD_PHASE: "Succeeded" })))),
            "Succeeded",
        ),
        (
            "bound, no worker",
            legacy,
            "WaitForFirstConsumer",
            Box::new(|c| c.claim = Some(claim("Bound", json!({})))),
            "PVCBound",
        ),
        (
            "bound, worker",
            legacy,
            "Pending",
            Box::new(|c| c.claim = Some(worked_on("Bound", "Pending"))),
            "ImportScheduled",
        ),
        (
            "failed, again",
            legacy,
            "ImportInProgress",
            Box::new(|c| c.claim = Some(worked_on("Bound", "Failed"))),
            "ImportScheduled",
        ),
        (
            "failed for good",
            legacy,
            "ImportInProgress",
            Box::new(|c| {
                let annotations = json!({
                    import::POD_NAME: "p", state::POD_PHASE: "Failed", import::FATAL_ERROR: "true",
                });
                c.claim = Some(claim("Bound", annotations));
            }),
            "Failed",
        ),
        (
            "between stages",
            legacy,
            "ImportInProgress",
            Box::new(|c| {
                let annotations = json!({
                    import::POD_NAME: "p", state::POD_PHASE: "Succeeded", state::CHECKPOINT_CURRENT: "s1",
                });
                c.claim = Some(claim("Bound", annotations));
            }),
            "Paused",
        ),
        (
            "done stays done",
            legacy,
            "Succeeded",
            Box::new(|c| c.claim = Some(worked_on("Bound", "Succeeded"))),
            "Succeeded",
        ),
        (
            "done, records of the worker removed",
            legacy,
            "Succeeded",
            Box::new(|c| c.claim = Some(claim("Bound", json!({})))),
            "Succeeded",
        ),
        (
            "done, claim terminating",
            populator,
            "Succeeded",
            Box::new(|c| {
                let mut claim = claim("Pending", json!({}));
                claim.metadata.deletion_timestamp =
                    serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
                c.claim = Some(claim);
            }),
            "Succeeded",
        ),
        (
            "done, claim of another owner",
            populator,
            "Succeeded",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({})));
                c.blocker = Some(PvcBlocker::foreign_claim(Event::warning("R", "m")));
            }),
            "Succeeded",
        ),
        ("done, claim deleted", populator, "Succeeded", Box::new(|_| ()), "Pending"),
        (
            "done, claim deleted, no quota",
            populator,
            "Succeeded",
            Box::new(|c| c.blocker = PvcBlocker::refused(&refusal(403, "exceeded quota: q"))),
            "Pending",
        ),
        (
            "done, claim deleted, source gone",
            populator,
            "Succeeded",
            Box::new(|c| c.blocker = Some(PvcBlocker::of_source(Event::warning("R", "m")))),
            "Pending",
        ),
        (
            "done, new claim",
            populator,
            "Succeeded",
            Box::new(|c| c.claim = Some(claim("", json!({})))),
            "Pending",
        ),
        (
            "done, new claim whose prime PVC is filled",
            populator,
            "Succeeded",
            Box::new(|c| {
                c.claim = Some(claim("Pending", json!({})));
                c.prime = Some(worked_on("Bound", ""));
            }),
            "ImportScheduled",
        ),
        (
            "done, new claim whose worker has not begun",
            legacy,
            "Succeeded",
            Box::new(|c| {
                c.claim = Some(claim("Bound", json!({ state::CREATED_FOR_DATA_VOLUME: "dv-uid" })));
            }),
            "PVCBound",
        ),
        (
            "done, new claim whose worker runs",
            legacy,
            "Succeeded",
            Box::new(|c| c.claim = Some(worked_on("Bound", "Running"))),
            "ImportInProgress",
        ),
        ("from the future", legacy, "Perplexed", Box::new(|_| ()), "Unknown"),
    ];
    for (name, population, phase, change, expected) in table {
        let mut case = Case::import(population, phase);
        change(&mut case);
        assert_eq!(case.phase(), expected, "{name}");
    }
}

#[test]
fn upload_is_ready_when_its_server_is() {
    let phase = |pod: &str, ready: &str| {
        let mut case = Case::import(PopulationMode::Legacy, "PVCBound");
        case.volume = volume(json!({ "upload": {} }), Some("PVCBound"));
        case.claim =
            Some(claim("Bound", json!({ state::POD_PHASE: pod, state::POD_READY: ready })));
        let plan = case.plan();
        let reason = plan.events.first().map(|event| event.reason.clone()).unwrap_or_default();
        (plan.status.phase.unwrap(), reason, plan.status.progress.unwrap())
    };
    let is = |phase: &str, reason: &str| (phase.to_owned(), reason.to_owned(), "N/A".to_owned());
    assert_eq!(phase("Pending", "false"), is("UploadScheduled", "UploadScheduled"));
    assert_eq!(phase("Running", "false"), is("UploadScheduled", "UploadScheduled"));
    assert_eq!(phase("Running", "true"), is("UploadReady", "UploadReady"));
    assert_eq!(phase("Failed", "false"), is("UploadScheduled", "UploadFailed"));
    let (last, reason, shown) = phase("Succeeded", "false");
    assert_eq!((&*last, &*reason, &*shown), ("Succeeded", "UploadSucceeded", "100.0%"));
}

#[test]
fn upload_reports_progress_until_its_server_is_lost() {
    let mut case = Case::import(PopulationMode::Legacy, "UploadReady");
    case.volume = volume(json!({ "upload": {} }), Some("UploadReady"));
    let server = |ready: &str| {
        claim("Bound", json!({ state::POD_PHASE: "Running", state::POD_READY: ready }))
    };
    for (ready, measured, expected) in [
        ("true", None, "N/A"),
        ("true", Some(41.5), "41.50%"),
        ("true", None, "41.50%"), // the scrape failed
        ("true", Some(100.0), "N/A"),
        ("true", Some(7.0), "7.00%"), // a new upload
        ("false", None, "N/A"),
    ] {
        (case.claim, case.measured) = (Some(server(ready)), measured);
        case.write();
        let status = case.volume.status.clone().unwrap();
        assert_eq!(status.progress.as_deref(), Some(expected), "{ready} {measured:?}");
    }
}
