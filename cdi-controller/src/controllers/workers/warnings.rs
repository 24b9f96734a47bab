//! Why a PVC is not bound: written on it, and forwarded from a prime PVC to its target, which users see.

use api::ClaimPhase;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::engine::cache::key_of;
use crate::engine::{Engine, Error};
use controller_core::bound;
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};

/// Executes a plan for a PVC. The warnings about its prime PVC are forwarded to it first: users see them there.
pub async fn execute_with_warnings(
    engine: &Engine,
    component: &'static str,
    target: &PersistentVolumeClaim,
    prime: Option<&PersistentVolumeClaim>,
    plan: Plan,
) -> Result<Requeue, Error> {
    let key = key_of(target);
    let mut warnings = engine.pvc_warnings.for_pvc(&key.namespace, &key.name);
    let forwarded = prime.map(|prime| new_warnings(engine, prime, &warnings)).unwrap_or_default();
    warnings.extend(forwarded.iter().cloned());
    let mut forward =
        Plan::writes(Write::annotations(target, &engine.annotations_with(target, &warnings)));
    forward.record(component, target, forwarded.iter().map(|seen| seen.event.clone()));
    let requeue = engine.execute_and_report(forward.then(plan)).await?;
    if meta::claim_phase(target) == ClaimPhase::Bound {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
    } else {
        // Once their events are recorded: a warning that is kept is not forwarded again.
        forwarded.into_iter().for_each(|seen| engine.pvc_warnings.record(key.clone(), seen));
    }
    Ok(requeue)
}

/// The warnings about a prime PVC that its target does not have yet.
fn new_warnings(
    engine: &Engine,
    prime: &PersistentVolumeClaim,
    of_target: &[bound::ObservedEvent],
) -> Vec<bound::ObservedEvent> {
    let (namespace, name) = (meta::namespace(&prime.metadata), meta::name(&prime.metadata));
    let of_prime = match meta::claim_phase(prime) {
        ClaimPhase::Bound | ClaimPhase::Lost => {
            engine.pvc_warnings.forget(namespace, name);
            Vec::new()
        }
        _ => engine.pvc_warnings.for_pvc(namespace, name),
    };
    let at = Some(engine.now());
    let events = bound::forwarded_events(name, &of_prime, of_target);
    events.into_iter().map(|event| bound::ObservedEvent { event, at }).collect()
}
