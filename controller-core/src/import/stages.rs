//! Imports with checkpoints (multi-stage imports): which stages have been copied, and which one is next.

use std::collections::BTreeSet;

use api::annotations::{import, state};
use api::v1beta1::Checkpoint;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::meta::{self, Changes, Pairs};

/// The annotations of a new PVC: an import with checkpoints starts with the first of them.
pub fn first(checkpoints: &[Checkpoint], last_is_final: bool) -> Pairs {
    let Some(first) = checkpoints.first() else { return Pairs::new() };
    let is_final = last_is_final && checkpoints.len() == 1;
    Pairs::from([
        (state::CHECKPOINT_CURRENT.into(), first.current.clone()),
        (state::CHECKPOINT_PREVIOUS.into(), first.previous.clone()),
        (state::CHECKPOINT_FINAL.into(), is_final.to_string()),
    ])
}

/// The changes to a PVC when the worker of a stage has succeeded, or checkpoints were added since. None while a worker
/// runs, and none if no checkpoint is left: then the import is paused.
pub fn advance(
    claim: &PersistentVolumeClaim,
    checkpoints: &[Checkpoint],
    last_is_final: bool,
    pod_uid: Option<&str>,
) -> Changes {
    let present = &claim.metadata;
    let noted = |key| meta::annotation(present, key);
    let mut changes = Changes::default();
    let Some(current) = noted(state::CHECKPOINT_CURRENT) else { return changes };
    if noted(state::POD_PHASE) != Some("Succeeded") {
        return changes;
    }
    let mut copied: BTreeSet<&str> = copied(claim).map(|(checkpoint, _)| checkpoint).collect();
    // A pod counts for one stage: it may be reconciled again after its success was recorded.
    let is_new = pod_uid.is_some_and(|uid| copied_by(claim, uid).is_none_or(|of| of == current));
    if let Some(uid) = pod_uid.filter(|_| is_new) {
        changes.set(present, &format!("{}.{current}", state::CHECKPOINT_COPIED), uid);
        changes.set(present, state::CHECKPOINT_POD_ID, uid);
        copied.insert(current);
    }
    if !copied.contains(current) {
        return changes;
    }
    let mut rest = checkpoints.iter().filter(|stage| !copied.contains(stage.current.as_str()));
    let is_final = meta::is_true(present, state::CHECKPOINT_FINAL);
    match rest.next() {
        Some(next) if !is_final => {
            let is_last = checkpoints.last() == Some(next) && last_is_final;
            changes.set(present, state::CHECKPOINT_CURRENT, next.current.as_str());
            changes.set(present, state::CHECKPOINT_PREVIOUS, next.previous.as_str());
            changes.set(present, state::CHECKPOINT_FINAL, is_last.to_string());
            // Each stage has its own worker.
            changes.set(present, state::POD_PHASE, "Unknown");
            changes.remove(present, import::POD_NAME);
        }
        _ if is_final || last_is_final => finish(claim, &mut changes),
        _ => {}
    }
    changes
}

/// All stages are copied.
fn finish(claim: &PersistentVolumeClaim, changes: &mut Changes) {
    let keys: Vec<String> = copied(claim)
        .map(|(checkpoint, _)| format!("{}.{checkpoint}", state::CHECKPOINT_COPIED))
        .chain(
            [
                state::CHECKPOINT_CURRENT,
                state::CHECKPOINT_PREVIOUS,
                state::CHECKPOINT_FINAL,
                state::CHECKPOINT_POD_ID,
            ]
            .map(str::to_owned),
        )
        .collect();
    changes.0.clear();
    for key in keys {
        changes.remove(&claim.metadata, &key);
    }
    changes.set(&claim.metadata, state::CHECKPOINT_DONE, "true");
}

/// The stages that are copied, and the UIDs of their pods.
fn copied(claim: &PersistentVolumeClaim) -> impl Iterator<Item = (&str, &str)> {
    claim.metadata.annotations.iter().flatten().filter_map(|(key, value)| {
        let stage = key.strip_prefix(state::CHECKPOINT_COPIED)?.strip_prefix('.')?;
        Some((stage, value.as_str()))
    })
}

fn copied_by<'a>(claim: &'a PersistentVolumeClaim, pod_uid: &str) -> Option<&'a str> {
    copied(claim).find(|(_, uid)| *uid == pod_uid).map(|(stage, _)| stage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stages(names: &[(&str, &str)]) -> Vec<Checkpoint> {
        let stage = |(previous, current): &(&str, &str)| Checkpoint {
            previous: (*previous).into(),
            current: (*current).into(),
        };
        names.iter().map(stage).collect()
    }

    struct Import {
        claim: PersistentVolumeClaim,
    }

    impl Import {
        fn started() -> Self {
            let claim = serde_json::from_value(json!({ "metadata": { "annotations": {
                state::CHECKPOINT_CURRENT: "s1", state::CHECKPOINT_PREVIOUS: "",
                state::CHECKPOINT_FINAL: "false", state::POD_PHASE: "Running",
                import::POD_NAME: "importer-1",
            } } }));
            Self { claim: claim.unwrap() }
        }

        fn annotate(&mut self, key: &str, value: &str) {
            self.claim
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(key.into(), value.into());
        }

        fn get(&self, key: &str) -> Option<&str> {
            meta::annotation(&self.claim.metadata, key)
        }

        fn advance(&mut self, all: &[Checkpoint], last: bool, pod: Option<&str>) -> bool {
            let changes = advance(&self.claim, all, last, pod);
            self.claim.metadata.annotations = Some(changes.applied_to(&self.claim.metadata));
            !changes.is_empty()
        }
    }

    #[test]
    fn import_advances_by_one_stage_until_the_final_one() {
        let mut import = Import::started();
        let all = stages(&[("", "s1"), ("s1", "s2"), ("s2", "s3")]);
        assert!(!import.advance(&all, false, Some("pod-1")), "the worker runs");

        import.annotate(state::POD_PHASE, "Succeeded");
        assert!(import.advance(&all, false, Some("pod-1")));
        assert_eq!(import.get(state::CHECKPOINT_CURRENT), Some("s2"));
        assert_eq!(import.get(state::CHECKPOINT_PREVIOUS), Some("s1"));
        assert_eq!(import.get("cdi.kubevirt.io/storage.checkpoint.copied.s1"), Some("pod-1"));
        assert_eq!(import.get(state::POD_PHASE), Some("Unknown"));
        assert_eq!(import.get(import::POD_NAME), None);

        import.annotate(state::POD_PHASE, "Succeeded");
        assert!(!import.advance(&all, false, Some("pod-1")), "that pod was counted");
        assert!(import.advance(&all, false, Some("pod-2")));
        assert_eq!(import.get(state::CHECKPOINT_CURRENT), Some("s3"));
        assert_eq!(import.get(state::CHECKPOINT_FINAL), Some("false"));

        // No checkpoint is left, and none was marked as the final one: the import is paused.
        import.annotate(state::POD_PHASE, "Succeeded");
        assert!(import.advance(&all, false, Some("pod-3")));
        assert_eq!(import.get(state::POD_PHASE), Some("Succeeded"));
        assert!(!import.advance(&all, false, None));

        // A last checkpoint is added.
        let all = stages(&[("", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "s4")]);
        assert!(import.advance(&all, true, None));
        assert_eq!(import.get(state::CHECKPOINT_CURRENT), Some("s4"));
        assert_eq!(import.get(state::CHECKPOINT_FINAL), Some("true"));
        import.annotate(state::POD_PHASE, "Succeeded");
        assert!(import.advance(&all, true, Some("pod-4")));
        let left: Vec<_> = import.claim.metadata.annotations.as_ref().unwrap().keys().collect();
        assert_eq!(left, [state::CHECKPOINT_DONE, state::POD_PHASE]);
        assert!(!import.advance(&all, true, Some("pod-4")));
    }

    #[test]
    fn paused_import_ends_when_its_last_stage_is_marked_as_final() {
        let mut import = Import::started();
        let all = stages(&[("", "s1")]);
        import.annotate(state::POD_PHASE, "Succeeded");
        assert!(import.advance(&all, false, Some("pod-1")));
        assert_eq!(import.get(state::CHECKPOINT_DONE), None);
        assert!(import.advance(&all, true, None));
        assert_eq!(import.get(state::CHECKPOINT_DONE), Some("true"));
    }
}
