//! A pod that reads the source of a copy, until its end.

use super::*;

pub(super) async fn follow(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let phase = meta::pod_phase(pod);
    let is_waiting = phase.is_waiting();
    let is_beside = plan::is_beside(&claim.metadata);
    if is_waiting && is_beside && plan::is_hopeless(pod, engine.now()) {
        return part(engine, claim, pod).await;
    }
    if is_waiting && !is_beside {
        provide_secret(engine, &claim, origin, pod).await?;
    }
    let plan = plan::plan(&claim.metadata, pod);
    let noted = Write::annotations(claim.as_ref(), &plan.annotations);
    // It was put off its node, and nobody starts it again. Another one takes its place.
    let deleted = if phase == PodPhase::Failed { Write::delete(pod) } else { None };
    let mut executed = Plan::writes(noted.into_iter().chain(deleted));
    executed.record(COMPONENT, claim.as_ref(), plan.events);
    executed.requeue = Requeue::after((is_waiting && is_beside).then_some(LOOK));
    engine.execute_and_report(executed).await
}

/// No node has both volumes: two pods, then. It is noted first, as the claim is what the server's controller looks at.
async fn part(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let mut changes = Changes::default();
    changes.set(&claim.metadata, state::CLONE_ON_ONE_NODE, "false");
    changes.set(&claim.metadata, state::POD_PHASE, "Pending");
    let noted = Write::annotations(claim.as_ref(), &changes);
    let plan = Plan::writes(noted.into_iter().chain(Write::delete(pod)));
    engine.execute_and_report(plan).await
}

/// The pod goes, unless somebody wants to look at it, and then the claim may.
pub(super) async fn end(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    source: &Origin,
    pod: Option<&Pod>,
) -> Result<Requeue, Error> {
    if !plan::has_finalizer(&claim.metadata) {
        return Ok(Requeue::OnChange);
    }
    let is_leaving = claim.metadata.deletion_timestamp.is_some();
    let is_retained = meta::is_true(&claim.metadata, request::RETAIN_PODS);
    let deleted = match pod {
        Some(pod) if is_leaving || !is_retained => Write::delete(pod),
        // It may have been created recently, and the watch may not have reported it.
        None if is_leaving => {
            let name = plan::pod_name(&claim.metadata);
            Some(Write::delete_named::<Pod>(&source.namespace, &name))
        }
        Some(_) | None => None,
    };
    let released = Write::remove_finalizer(claim.as_ref(), finalizer::CLONE_SOURCE);
    engine.execute_and_report(Plan::writes(deleted.into_iter().chain(released))).await
}
