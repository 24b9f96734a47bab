//! The writes of a step of a clone, and the progress on its target.

use super::*;

/// What is noted comes before what is done: a way that was given up, above all.
pub(super) async fn apply(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    parts: &Parts,
    step: Step,
) -> Result<Requeue, Error> {
    let Step { phase, actions, events, waits_for, look_again, fallback } = step;
    let target = match fallback {
        Some(because) => {
            let copy = ClonePlan::Copy { because: Some(because) };
            let changes = plan::decided(&target.metadata, &copy);
            workers::note(engine, target, &Pairs::new(), &changes).await?
        }
        None => target,
    };
    let target = progress(engine, target, phase, &waits_for, parts.claim()).await?;
    workers::record(engine, COMPONENT, target.as_ref(), events).await?;
    let all = actions.into_iter();
    let writes = all.filter_map(|action| write(engine, &target, &origin.namespace, action));
    let plan =
        Plan { writes: writes.collect(), requeue: Requeue::after(look_again), ..Plan::default() };
    execute(engine, &target, plan).await
}

/// Notes on the target how far it is.
pub(super) async fn progress(
    engine: &Engine,
    target: Arc<PersistentVolumeClaim>,
    phase: Phase,
    waits_for: &str,
    helper: Option<&PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let measured = match helper.filter(|_| phase == Phase::HostClone) {
        Some(helper) => measure(engine, helper).await,
        None => None,
    };
    let progress = Progress { phase, waits_for, is_queued: false, claim: helper, measured };
    let changes = plan::progressed(&target.metadata, &progress);
    workers::note(engine, target, &Pairs::new(), &changes).await
}

/// How far the pod is that reads for a claim.
pub async fn measure(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<f64> {
    let source = Origin::requested(&claim.metadata)?;
    let name = copy::pod_name(&claim.metadata);
    let pod = engine.api.caches.pods.get(&source.namespace, &name)?;
    scrape::percentage(&pod, scrape::CLONE).await
}

/// Executes a plan for a clone. Users learn on the target of a quota that does not suffice.
async fn execute(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    mut plan: Plan,
) -> Result<Requeue, Error> {
    for kind in
        plan.writes.iter().filter(|write| matches!(write, Write::Create(_))).map(Write::kind)
    {
        plan.on_refused = OnRefused::Report(Box::new(RefusalReport {
            which: ReportedFailures::Quota,
            kind,
            reason: events::EXCEEDED_QUOTA,
            prefix: String::new(),
            cause: CauseText::Message,
            audience: bound::audience(COMPONENT, target, None),
            // The DataVolume's condition says it too.
            note: Some((key_of(target), PvcNote::NotBound)),
        }));
    }
    engine.execute_and_report(plan).await
}

/// The write of an action. `None` where the object is gone, or terminating.
pub(super) fn write(
    engine: &Engine,
    target: &PersistentVolumeClaim,
    namespace: &str,
    action: Action,
) -> Option<Write> {
    let caches = &engine.api.caches;
    match action {
        Action::CreateClaim(claim) => Some(Write::create(*claim)),
        Action::CreatePod(pod) => Some(Write::create(*pod)),
        Action::CreateSnapshot(snapshot) => Some(Write::create(snapshot.into_object())),
        Action::RaiseRequest { claim, to } => {
            let claim = caches.claims.get(namespace, &claim)?;
            let size = claim::quantity(to);
            let merge = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
            Some(Write::patch(claim.as_ref(), merge))
        }
        Action::Rebind { volume, to } => {
            let volume = caches.persistent_volumes.get("", &volume)?;
            let name = meta::name(&volume.metadata);
            tracing::info!("rebinding PersistentVolume {name} to PVC {}", key_of(target));
            Some(Write::rebind(&volume, &to))
        }
        Action::DeleteClaim(name) => {
            engine.pvc_warnings.forget(namespace, &name);
            delete::<PersistentVolumeClaim>(engine, namespace, &name)
        }
        Action::DeleteSnapshot(name) => delete::<VolumeSnapshot>(engine, namespace, &name),
        Action::DeletePod(name) => delete::<Pod>(engine, namespace, &name),
    }
}

/// Deletes the object that the cache has, or whichever has its name: only clones make such names.
fn delete<K: Kind + Writable>(engine: &Engine, namespace: &str, name: &str) -> Option<Write> {
    let known = K::store(&engine.api.caches).and_then(|store| store.get(namespace, name));
    match known {
        Some(object) => Write::delete(object.as_ref()),
        None => Some(Write::delete_named::<K>(namespace, name)),
    }
}
