//! Completed DataVolumes. They are kept, unless an administrator has set a TTL (`dataVolumeTTLSeconds`): then the
//! DataVolume is deleted, and its PVC is kept with its content.
//!
//! Only DataVolumes that started while a TTL was set are marked for deletion, so setting one deletes no older
//! DataVolume. DataVolumes that another object owns or uses are never deleted.

use api::ClaimPhase;
use std::time::Duration;

use api::annotations::{request, state};
use api::v1beta1::DataVolume;
use api::{Phase, conditions as wire, events, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::facts::DataVolumeFacts;
use super::pvc;
use crate::event::Event;
use crate::ownership::without_owner;
use crate::plan::{Plan, Write};
use crate::{conditions, meta};

/// Whether a DataVolume is deleted because it has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TtlDecision {
    Keep,
    /// It has succeeded, and is deleted after this time.
    ExpiresIn(Duration),
    /// It is deleted now, without its PVC.
    Expired,
}

/// Whether a DataVolume is to be marked for deletion after completion: it is new, and has no such annotation yet.
pub(super) fn is_to_be_marked(volume: &DataVolume, ttl_seconds: Option<i32>) -> bool {
    let metadata = &volume.metadata;
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    // A client that restored or created it by hand deletes it itself.
    let is_restored =
        [request::PRE_POPULATED, request::CHECK_STATIC_VOLUME, request::POPULATED_FOR]
            .iter()
            .any(|key| meta::has_annotation(metadata, key));
    lifetime(ttl_seconds).is_some()
        && phase.unwrap_or_default().is_empty()
        && !meta::has_annotation(metadata, request::DELETE_AFTER_COMPLETION)
        && !is_restored
        && !is_needed(volume)
}

pub(super) fn ttl_decision(
    volume: &DataVolume,
    claim: Option<&PersistentVolumeClaim>,
    ttl_seconds: Option<i32>,
    now: Timestamp,
) -> TtlDecision {
    let Some(lifetime) = lifetime(ttl_seconds) else { return TtlDecision::Keep };
    let is_marked = meta::is_true(&volume.metadata, request::DELETE_AFTER_COMPLETION);
    if !is_marked || is_needed(volume) || !claim.is_some_and(|claim| can_do_without(claim, volume))
    {
        return TtlDecision::Keep;
    }
    let Some(since) = complete_since(volume) else { return TtlDecision::Keep };
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match lifetime.saturating_sub(age) {
        Duration::ZERO => TtlDecision::Expired,
        rest => TtlDecision::ExpiresIn(rest),
    }
}

/// Deletes an expired DataVolume. The garbage collector reads the owners of an object before it deletes it, so the PVC, which
/// loses its owner first, is kept.
pub(super) fn expire(facts: &DataVolumeFacts) -> Plan {
    let (volume, Some(claim)) = (&facts.volume, &facts.claim) else { return Plan::default() };
    let released = without_owner(claim, meta::uid(&volume.metadata));
    let mut plan = Plan::writes(released.into_iter().chain(Write::delete(volume.as_ref())));
    let name = meta::name(&volume.metadata);
    let message = format!("The TTL of DataVolume {name} has expired; its PVC is kept");
    let event = Event::normal(events::DATA_VOLUME_COLLECTED, message);
    plan.record(pvc::component(facts), claim.as_ref(), [event]);
    plan
}

/// How long a completed DataVolume is kept; `None`: for ever.
fn lifetime(ttl_seconds: Option<i32>) -> Option<Duration> {
    u64::try_from(ttl_seconds?).ok().map(Duration::from_secs)
}

/// Whether it has an owner that would create it again, or is being transferred.
fn is_needed(volume: &DataVolume) -> bool {
    let metadata = &volume.metadata;
    metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
        || meta::label(metadata, labels::DATA_IMPORT_CRON).is_some()
        || meta::has_annotation(metadata, state::OBJECT_TRANSFER_NAME)
}

/// Whether the PVC is complete, and has the DataVolume as its controller or, as it is released already, none.
fn can_do_without(claim: &PersistentVolumeClaim, volume: &DataVolume) -> bool {
    let owner = meta::controller(&claim.metadata);
    claim.metadata.deletion_timestamp.is_none()
        && meta::claim_phase(claim) == ClaimPhase::Bound
        && owner.is_none_or(|owner| owner.uid == meta::uid(&volume.metadata))
}

/// Since when it is ready.
fn complete_since(volume: &DataVolume) -> Option<Timestamp> {
    let status = volume.status.as_ref()?;
    let is_done = status.phase.as_deref() == Some(Phase::Succeeded.as_str());
    let all = status.conditions.as_deref().filter(|_| is_done)?;
    let ready = conditions::find(all, wire::READY)?;
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    since.filter(|_| ready.status == wire::status::TRUE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DONE_AT: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z

    fn finished() -> Value {
        json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {
                "name": "disk", "namespace": "vms", "uid": "1",
                "annotations": { request::DELETE_AFTER_COMPLETION: "true" },
            },
            "spec": { "source": { "blank": {} } },
            "status": {
                "phase": "Succeeded",
                "conditions": [
                    { "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ],
            },
        })
    }

    fn claim() -> Value {
        json!({
            "metadata": { "name": "disk", "namespace": "vms", "ownerReferences": [{
                "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk",
                "uid": "1", "controller": true,
            }] },
            "status": { "phase": "Bound" },
        })
    }

    fn after(volume: Value, claim: Option<Value>, ttl: Option<i32>, seconds: i64) -> TtlDecision {
        let volume = serde_json::from_value(volume).unwrap();
        let claim: Option<PersistentVolumeClaim> =
            claim.map(|claim| serde_json::from_value(claim).unwrap());
        let now = Timestamp::from_second(DONE_AT + seconds).unwrap();
        ttl_decision(&volume, claim.as_ref(), ttl, now)
    }

    #[test]
    fn ttl_decision_table() {
        for (ttl, seconds, expected) in [
            (None, 1_000_000, TtlDecision::Keep),
            (Some(-1), 1_000_000, TtlDecision::Keep),
            (Some(i32::MIN), 1_000_000, TtlDecision::Keep),
            (Some(0), 0, TtlDecision::Expired),
            (Some(0), -5, TtlDecision::Expired),
            (Some(100), 0, TtlDecision::ExpiresIn(Duration::from_secs(100))),
            (Some(100), 99, TtlDecision::ExpiresIn(Duration::from_secs(1))),
            (Some(100), 100, TtlDecision::Expired),
            (Some(100), -5, TtlDecision::ExpiresIn(Duration::from_secs(100))), // clocks differ
            (Some(i32::MAX), 0, TtlDecision::ExpiresIn(Duration::from_secs(i32::MAX as u64))),
        ] {
            assert_eq!(
                after(finished(), Some(claim()), ttl, seconds),
                expected,
                "{ttl:?} {seconds}"
            );
        }
    }

    #[test]
    fn only_completed_data_volumes_without_owner_expire() {
        type Change = fn(&mut Value, &mut Option<Value>);
        let owned = |kind: &str, controls: bool| json!([{ "apiVersion": "v1", "kind": kind, "name": "x", "uid": "x", "controller": controls }]);
        let table: [(&str, Change, TtlDecision); 14] = [
            ("as it is", |_, _| (), TtlDecision::Expired),
            (
                "annotated with false",
                |v, _| {
                    v["metadata"]["annotations"][request::DELETE_AFTER_COMPLETION] = "false".into()
                },
                TtlDecision::Keep,
            ),
            ("not annotated", |v, _| v["metadata"]["annotations"] = json!({}), TtlDecision::Keep),
            (
                "not done",
                |v, _| v["status"]["phase"] = "ImportInProgress".into(),
                TtlDecision::Keep,
            ),
            ("paused", |v, _| v["status"]["phase"] = "Paused".into(), TtlDecision::Keep),
            (
                "not ready",
                |v, _| v["status"]["conditions"][0]["status"] = "False".into(),
                TtlDecision::Keep,
            ),
            ("without conditions", |v, _| v["status"]["conditions"] = json!([]), TtlDecision::Keep),
            (
                "of a cron",
                |v, _| v["metadata"]["labels"] = json!({ labels::DATA_IMPORT_CRON: "c" }),
                TtlDecision::Keep,
            ),
            (
                "being transferred",
                |v, _| v["metadata"]["annotations"][state::OBJECT_TRANSFER_NAME] = "t".into(),
                TtlDecision::Keep,
            ),
            ("without a claim", |_, c| *c = None, TtlDecision::Keep),
            (
                "claim lost",
                |_, c| c.as_mut().unwrap()["status"]["phase"] = "Lost".into(),
                TtlDecision::Keep,
            ),
            (
                "claim terminating",
                |_, c| {
                    c.as_mut().unwrap()["metadata"]["deletionTimestamp"] =
                        "2026-01-01T00:00:00Z".into()
                },
                TtlDecision::Keep,
            ),
            (
                "claim released",
                |_, c| c.as_mut().unwrap()["metadata"]["ownerReferences"] = json!([]),
                TtlDecision::Expired,
            ),
            (
                "claim of another",
                |_, c| c.as_mut().unwrap()["metadata"]["ownerReferences"][0]["uid"] = "2".into(),
                TtlDecision::Keep,
            ),
        ];
        for (case, change, expected) in table {
            let (mut volume, mut claim) = (finished(), Some(claim()));
            change(&mut volume, &mut claim);
            assert_eq!(after(volume, claim, Some(0), 0), expected, "{case}");
        }
        for owners in [owned("VirtualMachine", true), owned("Something", false)] {
            let mut volume = finished();
            volume["metadata"]["ownerReferences"] = owners;
            assert_eq!(after(volume, Some(claim()), Some(0), 0), TtlDecision::Keep);
        }
    }

    #[test]
    fn only_data_volumes_that_start_with_a_ttl_are_marked() {
        type Change = fn(&mut Value);
        let table: [(&str, Option<i32>, Change, bool); 9] = [
            ("new", Some(0), |_| (), true),
            ("nothing is set", None, |_| (), false),
            ("turned off", Some(-1), |_| (), false),
            ("begun before", Some(0), |v| v["status"] = json!({ "phase": "Pending" }), false),
            ("done before", Some(0), |v| v["status"] = finished()["status"].clone(), false),
            (
                "annotated with false",
                Some(0),
                |v| {
                    v["metadata"]["annotations"] =
                        json!({ request::DELETE_AFTER_COMPLETION: "false" })
                },
                false,
            ),
            (
                "restored",
                Some(0),
                |v| v["metadata"]["annotations"] = json!({ request::PRE_POPULATED: "disk" }),
                false,
            ),
            (
                "of a cron",
                Some(0),
                |v| v["metadata"]["labels"] = json!({ labels::DATA_IMPORT_CRON: "c" }),
                false,
            ),
            (
                "of a virtual machine",
                Some(0),
                |v| v["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "VirtualMachine", "name": "x", "uid": "x" }]),
                false,
            ),
        ];
        for (case, ttl, change, expected) in table {
            let mut volume = finished();
            volume["metadata"]["annotations"] = json!({});
            volume["status"] = json!({});
            change(&mut volume);
            let volume = serde_json::from_value(volume).unwrap();
            assert_eq!(is_to_be_marked(&volume, ttl), expected, "{case}");
        }
    }
}
