//! The writes of a copy.

use api::PodPhase;
use api::annotations::{request, state};
use api::conditions::reason;
use api::events;
use api::labels::finalizer;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use std::time::Duration;

use super::{has_finalizer, is_hopeless, not_running, plan, pod_name, uses_one_pod};
use crate::bound;
use crate::clone::{self, Origin};
use crate::components::HOST_COPY as COMPONENT;
use crate::event::Event;
use crate::meta::{self, Changes};
use crate::object::Key;
use crate::plan::{Plan, Requeue, Write};
use crate::progress::POLL;
use crate::refusal::{OnRefused, PvcNote, RefusalReport};

/// How soon to check again a pod that waits for both volumes.
const BOTH_VOLUMES_POLL: Duration = Duration::from_secs(15);

/// A PVC that is copied to, and the one that users see: the target of the clone, where the PVC is an intermediate one.
#[derive(Clone, Copy)]
pub struct CopyTarget<'a> {
    pub claim: &'a PersistentVolumeClaim,
    pub shown: &'a PersistentVolumeClaim,
}

impl CopyTarget<'_> {
    fn record(self, mut plan: Plan, events: impl IntoIterator<Item = Event>) -> Plan {
        plan.record(COMPONENT, self.shown, events);
        plan
    }

    /// The upload server has all, and the pod that sent it is gone.
    pub fn plan_received(self) -> Plan {
        let mut changes = Changes::default();
        changes.set(&self.claim.metadata, state::CLONE_OF, "true");
        Plan::writes(Write::annotations(self.claim, &changes))
    }

    pub fn plan_without_source(self, origin: &Origin) -> Plan {
        let message = format!("The source {} doesn't exist", origin.named());
        self.record(Plan::default(), [Event::warning(events::CLONE_WITHOUT_SOURCE, message)])
    }

    /// The source and the target are incompatible.
    pub fn plan_mismatch(self, event: Event) -> Plan {
        self.record(Plan::default(), [event])
    }

    pub fn plan_unfilled(self, origin: &Origin) -> Plan {
        self.plan_waiting(reason::PENDING, &format!("{} to be filled", origin.name))
    }

    /// Pods may write to the source.
    pub fn plan_in_use(self, origin: &Origin, writers: &[&str]) -> Plan {
        let waits_for = clone::free_of(&origin.name, writers);
        let events = clone::events_of_writers(&origin.namespace, writers, &origin.name);
        self.record(self.plan_waiting(events::CLONE_SOURCE_IN_USE, &waits_for), events)
    }

    /// Reported in the annotations of the running copy, so that the DataVolume shows what the copy waits for.
    fn plan_waiting(self, reason: &str, waits_for: &str) -> Plan {
        let message = format!("Waits for {waits_for}");
        let changes = not_running(&self.claim.metadata, reason, &message);
        let requeue = Requeue::After(POLL);
        Plan { requeue, ..Plan::writes(Write::annotations(self.claim, &changes)) }
    }

    /// The pod's name and the finalizer are on the PVC before the pod exists: it has no owner in the namespace of the
    /// source, so nothing else deletes it. The Secret that the pod mounts has the pod as owner, and is created
    /// afterwards.
    pub fn plan_creation(self, pod: Pod) -> Plan {
        let claim = self.claim;
        let name = pod_name(&claim.metadata);
        let mut changes = Changes::default();
        changes.set(&claim.metadata, state::CLONE_SOURCE_POD_NAME, name.as_str());
        let named = Write::annotations(claim, &changes);
        let held = Write::add_finalizer(claim, finalizer::CLONE_SOURCE);
        let key = Key::new(meta::namespace(&claim.metadata), meta::name(&claim.metadata));
        let report = RefusalReport {
            note: Some((key.clone(), PvcNote::CopyNotRunning)),
            ..RefusalReport::of_worker(key, &name, bound::audience(COMPONENT, self.shown, None))
        };
        let is_alone = uses_one_pod(&claim.metadata);
        let requeue = if is_alone { Requeue::After(BOTH_VOLUMES_POLL) } else { Requeue::Now };
        Plan {
            requeue,
            requeue_if_exists: Some(Requeue::After(POLL)),
            on_refused: OnRefused::Report(Box::new(report)),
            ..Plan::writes(named.into_iter().chain(held).chain([Write::create(pod)]))
        }
    }
}

/// What follows from the status of the pod that reads the source.
pub fn plan_report(claim: &PersistentVolumeClaim, pod: &Pod, now: Timestamp) -> Plan {
    let phase = meta::worker_pod_phase(pod);
    let waits_for_both = phase.is_waiting() && uses_one_pod(&claim.metadata);
    if waits_for_both && is_hopeless(pod, now) {
        return plan_two_pods(claim, pod);
    }
    let report = plan(&claim.metadata, pod);
    let noted = Write::annotations(claim, &report.annotations);
    // It was evicted, and is not restarted. Another pod takes its place.
    let deleted = if phase == PodPhase::Failed { Write::delete(pod) } else { None };
    let mut plan = Plan::writes(noted.into_iter().chain(deleted));
    plan.record(COMPONENT, claim, report.events);
    plan.requeue = Requeue::after(waits_for_both.then_some(BOTH_VOLUMES_POLL));
    plan
}

/// No node has both volumes: two pods, then. The PVC first, as the controller of the upload server reads it.
fn plan_two_pods(claim: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    let mut changes = Changes::default();
    changes.set(&claim.metadata, state::CLONE_ON_ONE_NODE, "false");
    changes.set(&claim.metadata, state::POD_PHASE, "Pending");
    let noted = Write::annotations(claim, &changes);
    Plan::writes(noted.into_iter().chain(Write::delete(pod)))
}

/// Two pods replace the one, as the annotations of the PVC already request.
pub fn plan_replacement(pod: &Pod) -> Plan {
    Plan { requeue: Requeue::After(POLL), ..Plan::writes(Write::delete(pod)) }
}

/// The pod is deleted, unless the user wants to look at it, and then the finalizer is removed.
pub fn plan_end(claim: &PersistentVolumeClaim, source: &Origin, pod: Option<&Pod>) -> Plan {
    if !has_finalizer(&claim.metadata) {
        return Plan::default();
    }
    let is_terminating = claim.metadata.deletion_timestamp.is_some();
    let is_retained = meta::is_true(&claim.metadata, request::RETAIN_PODS);
    let deleted = match pod {
        Some(pod) if is_terminating || !is_retained => Write::delete(pod),
        // It may have been created recently, and the watch may not have reported it.
        None if is_terminating => {
            let name = pod_name(&claim.metadata);
            Some(Write::delete_named::<Pod>(&source.namespace, &name))
        }
        Some(_) | None => None,
    };
    let released = Write::remove_finalizer(claim, finalizer::CLONE_SOURCE);
    Plan::writes(deleted.into_iter().chain(released))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;
    use crate::plan::Presence;

    fn parsed<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn claim(change: fn(&mut Value)) -> PersistentVolumeClaim {
        let mut claim = json!({ "metadata": {
            "name": "disk", "namespace": "vms", "uid": "u",
            "annotations": { request::CLONE_REQUEST: "images/golden" },
        } });
        change(&mut claim);
        parsed(claim)
    }

    fn pod(phase: &str) -> Pod {
        parsed(json!({
            "metadata": {
                "name": "u-source-pod", "namespace": "images", "uid": "p",
                "creationTimestamp": "1970-01-01T00:00:00Z",
            },
            "status": { "phase": phase },
        }))
    }

    fn described(plan: &Plan) -> Vec<String> {
        let described = |write: &Write| match write {
            Write::Patch { merge, .. } => {
                let changed = merge["metadata"]["annotations"].as_object().unwrap();
                let keys = changed.keys().map(|key| key.rsplit(['/', '.']).next().unwrap());
                format!("annotate {}", keys.collect::<Vec<_>>().join(" "))
            }
            Write::SetFinalizer { presence: Presence::Present, .. } => "hold".into(),
            Write::SetFinalizer { presence: Presence::Absent, .. } => "release".into(),
            Write::Create(Object::Pod(_)) => "create pod".into(),
            Write::Delete(target) => {
                format!("delete {}{}", target.key, if target.uid.is_some() { "" } else { "?" })
            }
            other => panic!("no copy has this write: {other:?}"),
        };
        plan.writes.iter().map(described).collect()
    }

    #[test]
    fn end_of_a_copy_decision_table() {
        type Change = fn(&mut Value);
        let held: Change =
            |it| it["metadata"]["finalizers"] = json!([finalizer::CLONE_SOURCE, "other"]);
        let deleted: Change = |it| {
            it["metadata"]["finalizers"] = json!([finalizer::CLONE_SOURCE]);
            it["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        };
        let retained: Change = |it| {
            it["metadata"]["finalizers"] = json!([finalizer::CLONE_SOURCE]);
            it["metadata"]["annotations"][request::RETAIN_PODS] = "true".into();
        };
        let of_pod = "delete images/u-source-pod";
        let maybe = "delete images/u-source-pod?";
        let pod = pod("Succeeded");
        for (case, change, pod, expected) in [
            ("never held", (|_| ()) as Change, Some(&pod), vec![]),
            ("complete", held, Some(&pod), vec![of_pod, "release"]),
            ("complete, pod gone", held, None, vec!["release"]),
            ("pods are retained", retained, Some(&pod), vec!["release"]),
            ("deleted", deleted, Some(&pod), vec![of_pod, "release"]),
            ("deleted, pod not reported yet", deleted, None, vec![maybe, "release"]),
        ] {
            let claim = claim(change);
            let source = Origin::requested(&claim.metadata).unwrap();
            assert_eq!(described(&plan_end(&claim, &source, pod)), expected, "{case}");
        }
    }

    #[test]
    fn pod_is_created_once_its_name_and_the_finalizer_are_written() {
        let claim = claim(|_| ());
        let target = CopyTarget { claim: &claim, shown: &claim };
        let plan = target.plan_creation(pod(""));
        let writes = described(&plan);
        assert!(writes[0].starts_with("annotate "), "{writes:?}");
        assert_eq!(writes[1..], ["hold", "create pod"]);
        assert_eq!(plan.requeue, Requeue::Now, "the Secret is next");
    }

    #[test]
    fn status_of_the_pod_decision_table() {
        let one_pod: fn(&mut Value) = |it| {
            it["metadata"]["annotations"] = json!({
                request::CLONE_REQUEST: "vms/golden", state::CLONE_ON_ONE_NODE: "true",
            });
        };
        let of_pod = "delete images/u-source-pod".to_owned();
        for (case, change, phase, minutes, deletes, requeue) in [
            ("running", (|_| ()) as fn(&mut Value), "Running", 1, false, Requeue::OnChange),
            ("evicted", |_| (), "Failed", 1, true, Requeue::OnChange),
            ("waits for both", one_pod, "Pending", 1, false, Requeue::After(BOTH_VOLUMES_POLL)),
            ("waits too long", one_pod, "Pending", 10, true, Requeue::OnChange),
        ] {
            let now = Timestamp::from_second(60 * minutes).unwrap();
            let plan = plan_report(&claim(change), &pod(phase), now);
            let writes = described(&plan);
            assert_eq!(writes.contains(&of_pod), deletes, "{case}: {writes:?}");
            assert_eq!(plan.requeue, requeue, "{case}");
        }
    }
}
