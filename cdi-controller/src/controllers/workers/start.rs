//! A worker pod that is to be created, or was and does not run yet.

use std::ops::ControlFlow;
use std::time::Duration;

use api::ClaimPhase;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use runtime::decoded::{Decoded, decodable};

use crate::controllers::POLL;
use crate::engine::{Engine, Error};
use controller_core::claim_kind::prime_target;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::worker::StartDecision;
use controller_core::{classes, clone, meta, worker};

/// Pods that have ended have unmounted their PVCs.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Whether a worker may be created for a PVC now, and the worker's name, to be written on the PVC before that. Otherwise
/// what to do instead. The pods that use the PVC are listed only where all else permits the worker.
pub async fn admit(
    engine: &Engine,
    component: &'static str,
    claim: &PersistentVolumeClaim,
    decide: impl Fn(&[Pod]) -> StartDecision,
) -> Result<ControlFlow<Plan, Option<Write>>, Error> {
    if let StartDecision::Never | StartDecision::Wait = decide(&[]) {
        return Ok(ControlFlow::Break(Plan::default()));
    }
    // Its watch reports when it is bound.
    if meta::claim_phase(claim) != ClaimPhase::Bound && is_bound_without_pod(engine, claim) {
        return Ok(ControlFlow::Break(Plan::default()));
    }
    let users = pods_using(engine, claim).await?;
    Ok(match decide(&users) {
        StartDecision::Never | StartDecision::Wait => ControlFlow::Break(Plan::default()),
        StartDecision::Busy(event) => {
            let mut plan = Plan::requeue(Requeue::After(POLL));
            plan.record(component, claim, [event]);
            ControlFlow::Break(plan)
        }
        StartDecision::Note(changes) => ControlFlow::Continue(Write::annotations(claim, &changes)),
        StartDecision::Create => ControlFlow::Continue(None),
    })
}

/// Whether the storage provisions the volume before a pod uses it. A worker that is created earlier has to be scheduled twice,
/// and looks unschedulable until then.
fn is_bound_without_pod(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let classes = engine.classes();
    let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = classes::of_claim(&classes, name);
    class.is_some_and(|class| !classes::waits_for_consumer(class))
}

/// The pods that have a PVC mounted. Read from the API server, once before a worker is created: a watch of all pods of
/// a cluster would cost more than all the rest. Only their populator uses intermediate PVCs.
pub async fn pods_using(engine: &Engine, claim: &PersistentVolumeClaim) -> Result<Vec<Pod>, Error> {
    let is_helper =
        prime_target(&claim.metadata).is_some() || clone::owner_uid(&claim.metadata).is_some();
    if is_helper {
        return Ok(Vec::new());
    }
    pods_with(engine, meta::namespace(&claim.metadata), meta::name(&claim.metadata)).await
}

/// The pods of a namespace that have the PVC of this name mounted, its workers too.
pub async fn pods_with(engine: &Engine, namespace: &str, name: &str) -> Result<Vec<Pod>, Error> {
    let pods = Api::<Decoded<Pod>>::namespaced(engine.api.client(), namespace);
    let list = pods.list(&ListParams::default().fields(NOT_ENDED)).await;
    let list = list.map_err(|source| Error::Api {
        action: "list",
        kind: "pods of the namespace".into(),
        name: namespace.into(),
        source: Box::new(source),
    })?;
    Ok(decodable(list).into_iter().filter(|pod| worker::mounts(pod, name)).collect())
}

/// Why a worker that was created does not run yet: its events report it, once it should run.
pub async fn plan_delayed_start(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<Plan, Error> {
    match worker::starting_time_left(pod, engine.now()) {
        None => Ok(Plan::default()),
        Some(Duration::ZERO) => {
            let warning = engine.pod_warnings.last(&engine.api, pod).await?;
            let warning = warning.as_ref();
            let warning = warning.map(|it| (it.reason.as_str(), it.message.as_str()));
            Ok(worker::plan_delayed_start(claim, warning))
        }
        Some(left) => Ok(Plan::requeue(Requeue::After(left))),
    }
}
