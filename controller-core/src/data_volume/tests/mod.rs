mod conditions;
mod phase;
mod plan;
mod plan_facts;

use api::annotations::import;
use api::names;
use serde_json::{Value, json};

use super::*;

fn refusal(code: u16, message: &str) -> Refusal {
    Refusal { code, message: message.to_owned(), namespace_is_terminating: false }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn volume(source: Value, phase: Option<&str>) -> DataVolume {
    serde_json::from_value(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": { "name": "disk", "namespace": "vms", "uid": "dv-uid" },
        "spec": { "source": source, "storage": {} },
        "status": phase.map(|phase| json!({ "phase": phase })),
    }))
    .unwrap()
}

fn claim(phase: &str, annotations: Value) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "disk", "namespace": "vms", "annotations": annotations },
        "spec": {}, "status": { "phase": phase },
    }))
    .unwrap()
}

fn waiting_class() -> StorageClass {
    serde_json::from_value(json!({
        "metadata": { "name": "local" }, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer",
    }))
    .unwrap()
}

/// All that a row of the table may change.
struct Case {
    volume: DataVolume,
    population: PopulationMode,
    claim: Option<PersistentVolumeClaim>,
    prime: Option<PersistentVolumeClaim>,
    waits: bool,
    gate: bool,
    is_static: bool,
    measured: Option<f64>,
    blocker: Option<PvcBlocker>,
}

impl Case {
    fn import(population: PopulationMode, phase: &str) -> Self {
        Self {
            volume: volume(json!({ "http": { "url": "http://host/disk" } }), Some(phase)),
            population,
            claim: None,
            prime: None,
            waits: false,
            gate: true,
            is_static: false,
            measured: None,
            blocker: None,
        }
    }

    fn plan(&self) -> StatusPlan {
        let mut config = CdiConfigSpec::default();
        if self.gate {
            config.feature_gates = Some(vec![names::GATE_HONOR_WAIT_FOR_FIRST_CONSUMER.into()]);
        }
        let class = waiting_class();
        let class = self.waits.then_some(&class);
        status(&self.facts(&Operation::from_spec(&self.volume.spec), class, &config), now())
    }

    fn facts<'a>(
        &'a self,
        operation: &'a Operation,
        class: Option<&'a StorageClass>,
        config: &'a CdiConfigSpec,
    ) -> StatusFacts<'a> {
        StatusFacts {
            volume: &self.volume,
            operation,
            population: self.population,
            claim: self.claim.as_ref(),
            prime: self.prime.as_ref(),
            origin: None,
            class,
            config,
            waits_for_static_volume: self.is_static,
            measured: self.measured,
            blocker: self.blocker.as_ref(),
        }
    }

    fn phase(&self) -> String {
        self.plan().status.phase.unwrap()
    }

    /// The annotations to write to the DataVolume.
    fn written(&self) -> meta::Changes {
        let operation = Operation::from_spec(&self.volume.spec);
        annotations(&self.facts(&operation, None, &CdiConfigSpec::default()))
    }

    /// Writes the status, and returns the events.
    fn write(&mut self) -> Vec<Event> {
        let plan = self.plan();
        self.volume.status = Some(plan.status);
        plan.events
    }

    fn condition(&self, type_: &str) -> (String, String, String) {
        let status = self.plan().status;
        let conditions = status.conditions.unwrap();
        let found = crate::conditions::find(&conditions, type_).unwrap().clone();
        (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
    }
}

#[test]
fn vddk_annotations_are_copied_to_the_data_volume_without_a_populator() {
    for (population, is_copied) in
        [(PopulationMode::Legacy, true), (PopulationMode::Populator, false)]
    {
        let mut case = Case::import(population, "ImportInProgress");
        let annotations = json!({ state::VDDK_HOST: "esx-1", state::VDDK_VERSION: "8.0" });
        case.claim = Some(claim("Bound", annotations));
        for (key, value) in [(state::VDDK_HOST, "esx-1"), (state::VDDK_VERSION, "8.0")] {
            let found = case.written().0.get(key).cloned().flatten();
            assert_eq!(found.as_deref(), is_copied.then_some(value), "{population:?} {key}");
        }
        case.volume.metadata.annotations = Some(case.written().applied_to(&case.volume.metadata));
        assert!(case.written().is_empty());
    }
}

/// A PVC with a worker pod.
fn worked_on(phase: &str, pod: &str) -> PersistentVolumeClaim {
    claim(phase, json!({ import::POD_NAME: "importer-disk", state::POD_PHASE: pod }))
}

#[test]
fn progress_is_100_percent_only_after_success() {
    let shown = |population, pod: &str, noted: &str, measured| {
        let mut case = Case::import(population, "ImportInProgress");
        case.measured = measured;
        case.prime = Some(worked_on("Bound", pod));
        case.claim = Some(claim(
            "Bound",
            json!({ import::POD_NAME: "p", state::POD_PHASE: pod, state::POPULATOR_PROGRESS: noted }),
        ));
        case.plan().status.progress.unwrap()
    };
    assert_eq!(shown(PopulationMode::Populator, "Running", "42.00%", None), "42.00%");
    assert_eq!(shown(PopulationMode::Populator, "Running", "100.00%", None), "N/A");
    assert_eq!(shown(PopulationMode::Populator, "Pending", "", None), "N/A");
    assert_eq!(shown(PopulationMode::Legacy, "Running", "", Some(12.345)), "12.35%");
    assert_eq!(shown(PopulationMode::Legacy, "Running", "", None), "N/A");
    assert_eq!(shown(PopulationMode::Legacy, "Succeeded", "", None), "100.0%");
    assert_eq!(shown(PopulationMode::Populator, "Succeeded", "100.0%", None), "100.0%");
}

#[test]
fn pvc_that_was_full_before_shows_no_progress() {
    let shown = |old: Option<&str>, annotations: Value| {
        let mut case = Case::import(PopulationMode::Populator, "Pending");
        case.volume.status.as_mut().unwrap().progress = old.map(str::to_owned);
        case.claim = Some(claim("Bound", annotations));
        let status = case.plan().status;
        assert_eq!(status.phase.as_deref(), Some("Succeeded"));
        status.progress.unwrap()
    };
    let full = || json!({ request::POPULATED_FOR: "disk" });
    assert_eq!(shown(None, full()), "N/A");
    assert_eq!(shown(Some("N/A"), full()), "N/A");
    // The PVC was marked after the import: restored from a backup, or by the controller itself.
    assert_eq!(shown(Some("100.0%"), full()), "100.0%");
    let mut noted = full();
    noted[state::POPULATOR_PROGRESS] = "100.0%".into();
    assert_eq!(shown(None, noted), "100.0%");
}

#[test]
fn import_records_each_event_once() {
    let mut case = Case::import(PopulationMode::Populator, "");
    case.volume.status = None;
    let running = |pod: &str, running: &str, reason: &str, message: &str| {
        json!({
            state::POD_PHASE: pod, state::RUNNING: running, state::RUNNING_REASON: reason,
            state::RUNNING_MESSAGE: message, state::POD_RESTARTS: "0",
        })
    };
    let done = running("Succeeded", "false", "Completed", "Import Complete");
    let mut recorded = Vec::new();
    let states: Vec<(Option<PersistentVolumeClaim>, Option<PersistentVolumeClaim>)> = vec![
        (None, None),
        (Some(claim("Pending", json!({}))), None),
        (Some(claim("Pending", json!({}))), Some(worked_on("Bound", ""))),
        (
            Some(claim("Pending", json!({ state::POD_PHASE: "Pending" }))),
            Some(worked_on("Bound", "Pending")),
        ),
        (
            Some(claim("Pending", running("Running", "true", "Pod is running", ""))),
            Some(worked_on("Bound", "Running")),
        ),
        (Some(claim("Pending", done.clone())), Some(worked_on("Bound", "Succeeded"))),
        (Some(claim("Bound", done.clone())), Some(worked_on("Lost", "Succeeded"))),
        (Some(claim("Bound", done)), None),
    ];
    for (claim, prime) in states {
        (case.claim, case.prime) = (claim, prime);
        for event in case.write() {
            let phase = case.volume.status.as_ref().unwrap().phase.clone().unwrap();
            recorded.push(format!("{phase}: {} {} {}", event.kind, event.reason, event.message));
        }
        assert_eq!(case.write(), [], "no event is repeated");
    }
    assert_eq!(
        recorded,
        [
            "Pending: Normal NotFound No PVC found",
            "Pending: Normal Pending PVC disk Pending",
            "ImportScheduled: Normal ImportScheduled Import into disk scheduled",
            "ImportInProgress: Normal ImportInProgress Import into disk in progress",
            "Succeeded: Normal ImportSucceeded Successfully imported into PVC disk",
            "Succeeded: Normal Bound PVC disk Bound",
        ]
    );
    let status = case.volume.status.unwrap();
    assert!(is_ready(&status));
    assert_eq!(status.claim_name.as_deref(), Some("disk"));
    assert_eq!(status.restart_count, Some(0));
    assert_eq!(status.progress.as_deref(), Some("100.0%"));
}

#[test]
fn invariants_hold_for_every_combination() {
    let claim_phases = ["", "Pending", "Bound", "Lost", "Odd"];
    let pod_phases = ["", "Pending", "Running", "Succeeded", "Failed", "Unknown"];
    let sources = [
        json!({ "http": { "url": "http://h" } }),
        json!({ "blank": {} }),
        json!({ "upload": {} }),
        json!({ "pvc": { "namespace": "a", "name": "b" } }),
    ];
    let mut seen = 0;
    for old in Phase::ALL {
        for population in [PopulationMode::Legacy, PopulationMode::Populator] {
            for claim_phase in claim_phases {
                for pod in pod_phases {
                    for (source, waits) in sources.iter().flat_map(|s| [(s, false), (s, true)]) {
                        let mut case = Case::import(population, old.as_str());
                        case.volume = volume(source.clone(), Some(old.as_str()));
                        case.waits = waits;
                        case.claim = Some(worked_on(claim_phase, pod));
                        case.prime = Some(worked_on("Bound", pod));
                        let name = format!(
                            "{old} {population:?} {claim_phase:?} {pod:?} {source} {waits}"
                        );
                        case.write();
                        let status = case.volume.status.clone().unwrap();
                        let phase: Phase = status.phase.clone().unwrap().parse().unwrap();
                        assert!(
                            phase != Phase::Succeeded
                                || old == Phase::Succeeded
                                || claim_phase == "Bound" && pod == "Succeeded",
                            "done too early: {name}"
                        );
                        let is_complete = claim_phase == "Bound"
                            && (population == PopulationMode::Populator
                                || matches!(pod, "" | "Succeeded"));
                        assert!(
                            old != Phase::Succeeded || (phase == Phase::Succeeded) == is_complete,
                            "done and undone: {name}"
                        );
                        assert_eq!(
                            phase == Phase::Failed,
                            claim_phase == "Lost" || phase == old && old == Phase::Failed,
                            "{name}"
                        );
                        assert_eq!(status.conditions.as_ref().unwrap().len(), 3, "{name}");
                        assert!(!is_ready(&status) || phase == Phase::Succeeded, "{name}");
                        assert_eq!(
                            status.progress.as_deref() == Some("100.0%"),
                            phase == Phase::Succeeded,
                            "{name}"
                        );
                        // The second write changes nothing, so it records no event.
                        case.write();
                        assert_eq!(case.write(), [], "{name}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen, 23 * 2 * 5 * 6 * 8);
}
