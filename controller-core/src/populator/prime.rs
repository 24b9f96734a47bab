//! The prime PVC, which a worker fills for its target.

use api::annotations::{import as import_keys, request, state};
use api::v1beta1::ContentType;
use api::{labels, names};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Facts, Source};
use crate::meta::{self, Pairs};
use crate::{claim, import, worker};

/// On the same storage and as large as the target, with all that its worker needs in annotations.
pub(super) fn object(facts: &Facts, source: Source) -> PersistentVolumeClaim {
    let target = &facts.target.metadata;
    let mut labels = facts.installation.labels();
    labels.insert(labels::EXCLUDE_FROM_BACKUP.into(), "true".into());

    let mut annotations = worker::passed_on(target);
    for key in [
        request::SELECTED_NODE,
        request::RETAIN_PODS,
        request::VDDK_INIT_IMAGE,
        request::VDDK_EXTRA_ARGS,
        request::PRIORITY_CLASS,
        request::SERVICE_ACCOUNT,
        request::SOURCE_FORMAT,
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
            name: Some(names::prime_pvc(meta::uid(target))),
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
            let stages = spec.checkpoints.as_deref().unwrap_or_default();
            pairs.extend(import::stages::first(stages, spec.final_checkpoint.unwrap_or(false)));
            // Set at creation, which saves a write when the worker is created.
            let prime = names::prime_pvc(meta::uid(&facts.target.metadata));
            let stage = stages.first().map(|stage| stage.current.as_str());
            pairs.insert(import_keys::POD_NAME.into(), names::importer_pod(&prime, stage));
            pairs
        }
        Source::Upload(spec) => {
            let mut pairs = common(spec.content_type, spec.preallocation);
            pairs.extend(claim::upload_annotations());
            pairs
        }
        Source::Forklift => Pairs::from([(request::USE_POPULATOR.into(), "true".into())]),
    }
}
