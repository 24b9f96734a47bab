//! An importer pod that is there: what it waits for, and what its PVC says of it.

use super::*;

pub(super) async fn follow(
    engine: &Engine,
    mut claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let scratch = scratch_of(engine, &claim);
    let plan = plan::plan(&claim, pod, scratch.as_deref());
    let is_starting = meta::pod_phase(pod).is_waiting();
    let is_ending = plan.pod == PodFate::Goes;
    if is_starting && !is_ending {
        provide(engine, &claim, pod).await?;
        if scratch::is_needed(&claim) {
            let changes =
                bound::obstructed(&claim, reason::CREATING_SCRATCH_SPACE, CREATING_SCRATCH);
            claim = workers::note(engine, claim, &Pairs::new(), &changes).await?;
        }
        let is_young = workers::rest_of_its_way(engine, pod).is_some_and(|rest| !rest.is_zero());
        if plan::is_on_its_way(pod, is_young) {
            // Its volume may only just have come: no node takes a pod before that.
            let was_stuck = meta::annotation(&claim.metadata, state::POD_SCHEDULABLE);
            let claim = match was_stuck {
                Some("false") if !is_young => {
                    workers::note(engine, claim, &plan.labels, &plan.annotations).await?
                }
                _ => claim,
            };
            return workers::mind_start(engine, claim, pod).await;
        }
    }
    let noted = Plan {
        writes: Write::metadata(claim.as_ref(), &plan.labels, &plan.annotations)
            .into_iter()
            .collect(),
        events: workers::events_about(engine, COMPONENT, &claim, &plan.events),
        ..Plan::default()
    };
    let applied = engine.execute(noted).await?;
    let claim = applied.latest().map_or(claim, Arc::new);
    engine.report(applied).await?;
    let next_stage = next_stage(engine, &claim, Some(meta::uid(&pod.metadata)));
    let deleted = if is_ending { Write::delete(pod) } else { None };
    let writes = next_stage.into_iter().chain(deleted);
    engine.execute_and_report(Plan::writes(writes)).await
}

/// What a worker that has been made waits for: scratch space, and the authority of the cluster's proxy.
async fn provide(engine: &Engine, claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), Error> {
    if scratch::is_needed(claim) {
        provide_scratch(engine, claim, pod).await?;
    }
    let config = engine.config();
    let copy = worker::proxy_authority_copy(claim);
    let Some(authority) = worker::proxy_authority(config.as_deref()) else {
        return if mounts(pod, &copy) {
            // It was made when there was one, and would wait for it for ever. Its successor does not.
            engine.execute_and_report(Plan::writes(Write::delete(pod))).await.map(drop)
        } else {
            Ok(())
        };
    };
    let namespace = &engine.settings.installation.namespace;
    let Some(map) = engine.api.get::<ConfigMap>(namespace, authority).await? else {
        let what = format!("the ConfigMap {namespace}/{authority} with the proxy's authority");
        let event =
            Event::warning(api::events::RESOURCE_DOES_NOT_EXIST, format!("there is no {what}"));
        let events = workers::events_about(engine, COMPONENT, claim, &[event]);
        return engine.execute_and_report(Plan { events, ..Plan::default() }).await.map(drop);
    };
    let copy = ConfigMap {
        metadata: ObjectMeta {
            name: Some(copy),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(engine.settings.installation.labels()),
            owner_references: Some(vec![meta::owned_by("v1", "Pod", &pod.metadata)]),
            ..ObjectMeta::default()
        },
        data: map.data,
        binary_data: map.binary_data,
        immutable: None,
    };
    engine.execute_and_report(Plan::writes([Write::create(copy)])).await.map(drop)
}

/// Makes scratch space for a worker that asked for it.
pub async fn provide_scratch(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<(), Error> {
    let namespace = meta::namespace(&claim.metadata);
    let name = names::scratch_pvc(meta::name(&claim.metadata));
    if let Some(present) = engine.api.caches.claims.get(namespace, &name) {
        // It waits for the pod that waits for it.
        let is_terminating = present.metadata.deletion_timestamp.is_some();
        let deleted = if is_terminating { Write::delete(pod) } else { None };
        return engine.execute_and_report(Plan::writes(deleted)).await.map(drop);
    }
    let config = engine.config();
    let classes = engine.classes();
    let object = scratch::object(&scratch::Facts {
        claim,
        pod,
        classes: &classes,
        config: config.as_ref().and_then(|config| config.status.as_ref()),
        installation: &engine.settings.installation,
    });
    let Some(object) = object else { return Ok(()) };
    let target = workers::filled_for(engine, claim);
    let report = RefusalReport {
        which: ReportedFailures::Quota,
        kind: ObjectKind::PersistentVolumeClaim,
        reason: api::events::EXCEEDED_QUOTA,
        prefix: String::new(),
        cause: CauseText::Message,
        audience: bound::audience(COMPONENT, claim, target.as_deref()),
        note: None,
    };
    let plan = Plan {
        writes: vec![Write::create(object)],
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    engine.execute_and_report(plan).await.map(drop)
}

/// The scratch space that a worker has asked for, once it is there.
fn scratch_of(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    if !scratch::is_needed(claim) {
        return None;
    }
    let name = names::scratch_pvc(meta::name(&claim.metadata));
    engine.api.caches.claims.get(meta::namespace(&claim.metadata), &name)
}

/// Notes the next stage of an import in stages.
pub(super) fn next_stage(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod_uid: Option<&str>,
) -> Option<Write> {
    if !meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT) {
        return None;
    }
    let (checkpoints, last_is_final) = stages_of(engine, claim);
    let changes = stages::advance(claim, &checkpoints, last_is_final, pod_uid);
    Write::annotations(claim, &changes)
}

/// The stages as they are listed now: by the source that the target refers to, or by the DataVolume.
fn stages_of(engine: &Engine, claim: &PersistentVolumeClaim) -> (Vec<Checkpoint>, bool) {
    let caches = &engine.api.caches;
    let namespace = meta::namespace(&claim.metadata);
    let target = prime_target(&claim.metadata)
        .and_then(|target| caches.claims.get(&target.namespace, &target.name));
    let source = target.and_then(|target| {
        let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
        caches.import_sources.get(namespace, &reference.name)
    });
    if let Some(source) = source {
        let stages = source.spec.checkpoints.clone().unwrap_or_default();
        return (stages, source.spec.final_checkpoint.unwrap_or(false));
    }
    let owner = meta::controller(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
    match owner.and_then(|owner| caches.volumes.get(namespace, &owner.name)) {
        Some(volume) => {
            let stages = volume.spec.checkpoints.clone().unwrap_or_default();
            (stages, volume.spec.final_checkpoint.unwrap_or(false))
        }
        None => (Vec::new(), false),
    }
}
