//! The writes for an importer pod that exists.

use api::annotations::state;
use api::conditions::reason;
use api::events;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::PodAction;
use crate::components::IMPORT as COMPONENT;
use crate::event::Event;
use crate::meta::{self, Installation};
use crate::object::ObjectKind;
use crate::plan::{Plan, Requeue, Write};
use crate::refusal::{CauseText, OnRefused, RefusalReport, ReportedFailures};
use crate::{bound, worker};

/// What follows from the pod's status: it is written on the PVC first, and the pod is deleted last, as its status is lost
/// then. The next stage of an import with checkpoints is planned once the end of this one is written.
/// `target`: the PVC that users see, where the pod fills a prime PVC.
pub fn plan_report(
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
    pod: &Pod,
    report: &super::Plan,
    next_stage: impl FnOnce() -> Option<Write>,
) -> Plan {
    let is_ending = report.pod == PodAction::Delete;
    let is_staged = meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT);
    let events = bound::events_about(COMPONENT, claim, target, &report.events);
    match Write::metadata(claim, &report.labels, &report.annotations) {
        Some(written) => {
            let requeue = if is_ending || is_staged { Requeue::Now } else { Requeue::OnChange };
            Plan { events, requeue, ..Plan::writes([written]) }
        }
        None => {
            let deleted = if is_ending { Write::delete(pod) } else { None };
            Plan { events, ..Plan::writes(next_stage().into_iter().chain(deleted)) }
        }
    }
}

/// Creates the importer pod. Until then the PVC may have reported that it waits for VMware's library.
pub fn creation_writes(claim: &PersistentVolumeClaim, pod: Pod) -> impl Iterator<Item = Write> {
    let cleared = bound::cleared(claim, reason::AWAITING_VDDK);
    Write::annotations(claim, &cleared).into_iter().chain([Write::create(pod)])
}

/// The PVC reports that no image with VMware's library is configured.
pub fn vddk_image_missing(claim: &PersistentVolumeClaim) -> Option<Write> {
    let message = worker::Error::NoVddkImage.to_string();
    Write::annotations(claim, &bound::obstructed(claim, reason::AWAITING_VDDK, &message))
}

/// Scratch space for a worker that requires it. `scratch`: to be created where there is none.
pub fn plan_scratch(
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
    pod: &Pod,
    present: Option<&PersistentVolumeClaim>,
    scratch: impl FnOnce() -> Option<PersistentVolumeClaim>,
) -> Plan {
    if let Some(present) = present {
        // A terminating one is kept by the pod that waits for it.
        let is_terminating = present.metadata.deletion_timestamp.is_some();
        return Plan::writes(if is_terminating { Write::delete(pod) } else { None });
    }
    let report = RefusalReport {
        which: ReportedFailures::Quota,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: events::EXCEEDED_QUOTA,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(COMPONENT, claim, target),
        note: None,
    };
    let on_refused = OnRefused::Report(Box::new(report));
    Plan { on_refused, ..Plan::writes(scratch().map(Write::create)) }
}

/// The ConfigMap with the CA certificates of the cluster's proxy.
#[derive(Clone, Copy, Debug)]
pub enum ProxyAuthority<'a> {
    /// The settings name none.
    Unset,
    Missing {
        namespace: &'a str,
        name: &'a str,
    },
    Present(&'a ConfigMap),
}

/// The copy of the proxy's CA certificates that a pod mounts.
pub fn plan_proxy_copy(
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
    pod: &Pod,
    authority: ProxyAuthority,
    installation: &Installation,
) -> Plan {
    let copy = worker::proxy_authority_copy(claim);
    match authority {
        // A pod that was created while there was a ConfigMap waits for it for ever. The next pod does not.
        ProxyAuthority::Unset => {
            Plan::writes(if mounts(pod, &copy) { Write::delete(pod) } else { None })
        }
        ProxyAuthority::Missing { namespace, name } => {
            let message = format!(
                "ConfigMap {namespace}/{name} with the proxy's CA certificates does not exist"
            );
            let event = Event::warning(events::RESOURCE_DOES_NOT_EXIST, message);
            let events = bound::events_about(COMPONENT, claim, target, &[event]);
            Plan { events, ..Plan::default() }
        }
        ProxyAuthority::Present(map) => Plan::writes([Write::create(ConfigMap {
            metadata: ObjectMeta {
                name: Some(copy),
                namespace: claim.metadata.namespace.clone(),
                labels: Some(installation.labels()),
                owner_references: Some(vec![meta::owned_by("v1", "Pod", &pod.metadata)]),
                ..ObjectMeta::default()
            },
            data: map.data.clone(),
            binary_data: map.binary_data.clone(),
            immutable: None,
        })]),
    }
}

/// Whether a pod starts only once there is this ConfigMap.
fn mounts(pod: &Pod, map: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.config_map.as_ref()).any(|source| source.name == map)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::meta::{Changes, Pairs};
    use crate::object::ObjectRef;

    fn parsed<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn claim(annotations: Value) -> PersistentVolumeClaim {
        let metadata = json!({ "name": "disk", "namespace": "vms", "annotations": annotations });
        parsed(json!({ "metadata": metadata }))
    }

    fn pod(map: &str) -> Pod {
        parsed(json!({
            "metadata": { "name": "importer-disk", "namespace": "vms", "uid": "p" },
            "spec": { "containers": [], "volumes": [{ "name": "v", "configMap": { "name": map } }] },
        }))
    }

    #[test]
    fn report_decision_table() {
        let stage = || Some(Write::delete_named::<Pod>("vms", "next-stage"));
        let deleted = Write::delete(&pod("")).unwrap();
        for (case, checkpoint, is_changed, action, writes, requeue) in [
            ("new status", None, true, PodAction::Keep, vec!["patch"], Requeue::OnChange),
            ("end", None, true, PodAction::Delete, vec!["patch"], Requeue::Now),
            ("end of a stage", Some("a"), true, PodAction::Keep, vec!["patch"], Requeue::Now),
            (
                "end is written",
                None,
                false,
                PodAction::Delete,
                vec!["stage", "pod"],
                Requeue::OnChange,
            ),
            ("nothing new", None, false, PodAction::Keep, vec!["stage"], Requeue::OnChange),
        ] {
            let claim = claim(json!({ state::CHECKPOINT_CURRENT: checkpoint.unwrap_or("") }));
            let claim = if checkpoint.is_some() { claim } else { self::claim(json!({})) };
            let mut annotations = Changes::default();
            if is_changed {
                annotations.set(&claim.metadata, state::POD_PHASE, "Succeeded");
            }
            let report = super::super::Plan {
                labels: Pairs::new(),
                annotations,
                events: vec![Event::normal("R", "m")],
                pod: action,
            };
            let plan = plan_report(&claim, None, &pod(""), &report, stage);
            let names = plan.writes.iter().map(|write| match write {
                Write::Patch { .. } => "patch",
                write if *write == deleted => "pod",
                _ => "stage",
            });
            let names: Vec<_> = names.collect();
            assert_eq!((names, plan.requeue), (writes, requeue), "{case}");
            assert_eq!(plan.events.len(), 1, "{case}");
        }
    }

    #[test]
    fn scratch_is_created_once_and_never_used_while_it_terminates() {
        let scratch = || Some(claim(json!({})));
        let pod = pod("");
        let plan = |present: Option<&PersistentVolumeClaim>| {
            plan_scratch(&claim(json!({})), None, &pod, present, scratch)
        };
        assert_eq!(plan(None).writes, [Write::create(claim(json!({})))]);
        assert!(matches!(plan(None).on_refused, OnRefused::Report(_)));
        let mut present = claim(json!({}));
        assert_eq!(plan(Some(&present)).writes, []);
        present.metadata.deletion_timestamp = parsed(json!("2026-01-01T00:00:00Z"));
        assert_eq!(plan(Some(&present)).writes, [Write::Delete(ObjectRef::for_object(&pod))]);
    }

    #[test]
    fn proxy_copy_decision_table() {
        let claim = claim(json!({}));
        let copy = worker::proxy_authority_copy(&claim);
        let map: ConfigMap = parsed(json!({ "data": { "ca.pem": "x" } }));
        let installation = Installation::default();
        let plan =
            |pod: &Pod, authority| plan_proxy_copy(&claim, None, pod, authority, &installation);
        assert_eq!(plan(&pod("other"), ProxyAuthority::Unset), Plan::default());
        let waiting = pod(&copy);
        let writes = plan(&waiting, ProxyAuthority::Unset).writes;
        assert_eq!(writes, [Write::Delete(ObjectRef::for_object(&waiting))]);
        let missing = ProxyAuthority::Missing { namespace: "cdi", name: "ca" };
        let missing = plan(&waiting, missing);
        assert_eq!((missing.writes, missing.events.len()), (vec![], 1));
        let created = plan(&waiting, ProxyAuthority::Present(&map)).writes;
        let [Write::Create(crate::object::Object::ConfigMap(created))] = created.as_slice() else {
            panic!("{created:?}")
        };
        assert_eq!(created.metadata.name.as_deref(), Some(copy.as_str()));
        assert_eq!(created.data, map.data);
        assert_eq!(created.metadata.owner_references.as_ref().unwrap()[0].uid, "p");
    }
}
