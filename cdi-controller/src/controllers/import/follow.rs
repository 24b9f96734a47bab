//! An importer pod that is there: what it waits for, and what its PVC says of it.

use super::*;

pub(super) async fn follow(
    context: &Context,
    mut claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Next, Error> {
    let scratch = scratch_of(context, &claim);
    let plan = plan::plan(&claim, pod, scratch.as_deref());
    let is_starting = meta::pod_phase(pod).is_waiting();
    let is_ending = plan.pod == PodFate::Goes;
    if is_starting && !is_ending {
        provide(context, &claim, pod).await?;
        if scratch::is_needed(&claim) {
            let changes =
                bound::obstructed(&claim, reason::CREATING_SCRATCH_SPACE, CREATING_SCRATCH);
            claim = workers::note(context, claim, &Pairs::new(), &changes).await?;
        }
        let is_young = workers::rest_of_its_way(context, pod).is_some_and(|rest| !rest.is_zero());
        if plan::is_on_its_way(pod, is_young) {
            // Its volume may only just have come: no node takes a pod before that.
            let was_stuck = meta::annotation(&claim.metadata, state::POD_SCHEDULABLE);
            let claim = match was_stuck {
                Some("false") if !is_young => {
                    workers::note(context, claim, &plan.labels, &plan.annotations).await?
                }
                _ => claim,
            };
            return workers::mind_start(context, claim, pod).await;
        }
    }
    let noted = Plan {
        writes: Write::metadata(claim.as_ref(), &plan.labels, &plan.annotations)
            .into_iter()
            .collect(),
        events: workers::events_about(context, COMPONENT, &claim, &plan.events),
        ..Plan::default()
    };
    let applied = context.execute(noted).await?;
    let claim = applied.latest().map_or(claim, Arc::new);
    context.report(applied).await?;
    let next_stage = next_stage(context, &claim, Some(meta::uid(&pod.metadata)));
    let deleted = if is_ending { Write::delete(pod) } else { None };
    let writes = next_stage.into_iter().chain(deleted);
    context.carry_out(Plan::writes(writes)).await.map(Next::from)
}

/// What a worker that has been made waits for: scratch space, and the authority of the cluster's proxy.
async fn provide(context: &Context, claim: &PersistentVolumeClaim, pod: &Pod) -> Result<(), Error> {
    if scratch::is_needed(claim) {
        provide_scratch(context, claim, pod).await?;
    }
    let config = context.config();
    let copy = worker::proxy_authority_copy(claim);
    let Some(authority) = worker::proxy_authority(config.as_deref()) else {
        return if mounts(pod, &copy) {
            // It was made when there was one, and would wait for it for ever. Its successor does not.
            context.carry_out(Plan::writes(Write::delete(pod))).await.map(drop)
        } else {
            Ok(())
        };
    };
    let namespace = &context.settings.installation.namespace;
    let Some(map) = context.cluster.get::<ConfigMap>(namespace, authority).await? else {
        let what = format!("the ConfigMap {namespace}/{authority} with the proxy's authority");
        let event =
            Event::warning(api::events::RESOURCE_DOES_NOT_EXIST, format!("there is no {what}"));
        let events = workers::events_about(context, COMPONENT, claim, &[event]);
        return context.carry_out(Plan { events, ..Plan::default() }).await.map(drop);
    };
    let copy = ConfigMap {
        metadata: ObjectMeta {
            name: Some(copy),
            namespace: claim.metadata.namespace.clone(),
            labels: Some(context.settings.installation.labels()),
            owner_references: Some(vec![meta::owned_by("v1", "Pod", &pod.metadata)]),
            ..ObjectMeta::default()
        },
        data: map.data,
        binary_data: map.binary_data,
        immutable: None,
    };
    context.carry_out(Plan::writes([Write::create(copy)])).await.map(drop)
}

/// Makes scratch space for a worker that asked for it.
pub async fn provide_scratch(
    context: &Context,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<(), Error> {
    let namespace = meta::namespace(&claim.metadata);
    let name = names::scratch_pvc(meta::name(&claim.metadata));
    if let Some(present) = context.cluster.stores.claims.get(namespace, &name) {
        // It waits for the pod that waits for it.
        let is_terminating = present.metadata.deletion_timestamp.is_some();
        let deleted = if is_terminating { Write::delete(pod) } else { None };
        return context.carry_out(Plan::writes(deleted)).await.map(drop);
    }
    let config = context.config();
    let classes = context.classes();
    let object = scratch::object(&scratch::Facts {
        claim,
        pod,
        classes: &classes,
        config: config.as_ref().and_then(|config| config.status.as_ref()),
        installation: &context.settings.installation,
    });
    let Some(object) = object else { return Ok(()) };
    let target = workers::filled_for(context, claim);
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
    context.carry_out(plan).await.map(drop)
}

/// The scratch space that a worker has asked for, once it is there.
fn scratch_of(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    if !scratch::is_needed(claim) {
        return None;
    }
    let name = names::scratch_pvc(meta::name(&claim.metadata));
    context.cluster.stores.claims.get(meta::namespace(&claim.metadata), &name)
}

/// Notes the next stage of an import in stages.
pub(super) fn next_stage(
    context: &Context,
    claim: &PersistentVolumeClaim,
    pod_uid: Option<&str>,
) -> Option<Write> {
    if !meta::has_annotation(&claim.metadata, state::CHECKPOINT_CURRENT) {
        return None;
    }
    let (checkpoints, last_is_final) = stages_of(context, claim);
    let changes = stages::advance(claim, &checkpoints, last_is_final, pod_uid);
    Write::annotations(claim, &changes)
}

/// The stages as they are listed now: by the source that the target refers to, or by the DataVolume.
fn stages_of(context: &Context, claim: &PersistentVolumeClaim) -> (Vec<Checkpoint>, bool) {
    let stores = &context.cluster.stores;
    let namespace = meta::namespace(&claim.metadata);
    let target = prime_target(&claim.metadata)
        .and_then(|target| stores.claims.get(&target.namespace, &target.name));
    let source = target.and_then(|target| {
        let reference = target.spec.as_ref()?.data_source_ref.as_ref()?;
        stores.import_sources.get(namespace, &reference.name)
    });
    if let Some(source) = source {
        let stages = source.spec.checkpoints.clone().unwrap_or_default();
        return (stages, source.spec.final_checkpoint.unwrap_or(false));
    }
    let owner = meta::controller(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
    match owner.and_then(|owner| stores.volumes.get(namespace, &owner.name)) {
        Some(volume) => {
            let stages = volume.spec.checkpoints.clone().unwrap_or_default();
            (stages, volume.spec.final_checkpoint.unwrap_or(false))
        }
        None => (Vec::new(), false),
    }
}
