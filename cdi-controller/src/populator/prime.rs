//! The claim that is filled in the stead of another.

use api::annotations::{request, state};
use api::v1beta1::{Checkpoint, ContentType};
use api::{labels, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Facts, Source};
use crate::meta::{self, Pairs};
use crate::{claim, worker};

/// On the same storage and as large as the target, with all that a worker has to know in its annotations.
pub(super) fn object(facts: &Facts, source: Source) -> PersistentVolumeClaim {
    let target = &facts.target.metadata;
    let mut labels = facts.installation.labels();
    labels.insert(labels::EXCLUDE_FROM_BACKUP.into(), "true".into());

    let mut annotations = worker::passed_on(target);
    for key in [
        request::SELECTED_NODE,
        request::RETAIN_PODS,
        request::VDDK_EXTRA_ARGS,
        request::PRIORITY_CLASS,
        request::SERVICE_ACCOUNT,
    ] {
        if let Some(value) = meta::annotation(target, key) {
            annotations.insert(key.into(), value.into());
        }
    }
    annotations.insert(request::BIND_IMMEDIATE.into(), String::new());
    annotations.insert(state::POPULATOR_KIND.into(), source.kind().into());
    annotations.extend(of_source(facts, source));

    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::prime(meta::uid(target))),
            namespace: target.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![meta::owned_by("v1", "PersistentVolumeClaim", target)]),
            ..ObjectMeta::default()
        },
        spec: Some(claim::same_storage(facts.target)),
        status: None,
    }
}

fn of_source(facts: &Facts, source: Source) -> Pairs {
    let common = |content: Option<ContentType>, preallocation| {
        let preallocation = claim::preallocation(preallocation, facts.config);
        claim::common_annotations(content.unwrap_or_default(), preallocation)
    };
    match source {
        Source::Import(spec) => {
            let mut pairs = common(spec.content_type, spec.preallocation);
            pairs.extend(spec.source.as_ref().map(claim::annotations).unwrap_or_default());
            pairs.extend(first_stage(
                spec.checkpoints.as_deref().unwrap_or_default(),
                spec.final_checkpoint.unwrap_or(false),
            ));
            pairs
        }
        Source::Upload(spec) => {
            let mut pairs = common(spec.content_type, spec.preallocation);
            pairs.extend(claim::upload_annotations());
            pairs
        }
    }
}

/// An import in stages begins with the first of them.
fn first_stage(checkpoints: &[Checkpoint], last_is_final: bool) -> Pairs {
    let Some(first) = checkpoints.first() else { return Pairs::new() };
    let is_final = last_is_final && checkpoints.len() == 1;
    Pairs::from([
        (state::CHECKPOINT_CURRENT.into(), first.current.clone()),
        (state::CHECKPOINT_PREVIOUS.into(), first.previous.clone()),
        (state::CHECKPOINT_FINAL.into(), is_final.to_string()),
    ])
}
