//! An importer pod that exists: what it waits for, and what its PVC reports.

use std::sync::Arc;

use api::annotations::state;
use api::conditions::reason;
use api::names;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};

use super::stages::next_stage;
use crate::controllers::workers;
use crate::engine::{Engine, Error};
use controller_core::import::{self, PodAction, ProxyAuthority};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::{bound, meta, scratch, worker};

/// What a PVC reports from when its worker is to have scratch space until that runs.
const CREATING_SCRATCH: &str = "Creating scratch space";

pub(super) async fn plan_pod(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<Plan, Error> {
    let scratch = scratch_of(engine, claim);
    let report = import::plan(claim, pod, scratch.as_deref());
    let target = workers::filled_for(engine, claim);
    let reported = || {
        let next_stage = || next_stage(engine, claim, Some(meta::uid(&pod.metadata)));
        import::plan_report(claim, target.as_deref(), pod, &report, next_stage)
    };
    if !meta::pod_phase(pod).is_waiting() || report.pod == PodAction::Delete {
        return Ok(reported());
    }
    let provided = plan_needs(engine, claim, pod).await?;
    let is_young = worker::is_young(pod, engine.now());
    if !import::is_starting(pod, is_young) {
        return Ok(provided.then(reported()));
    }
    // The pod may not have been schedulable because its volume was not provisioned yet.
    let was_stuck = meta::annotation(&claim.metadata, state::POD_SCHEDULABLE) == Some("false");
    let scheduled = Write::metadata(claim, &report.labels, &report.annotations);
    match scheduled.filter(|_| was_stuck && !is_young) {
        Some(write) => {
            let requeue = Requeue::Now;
            Ok(provided.then(Plan { requeue, ..Plan::writes([write]) }))
        }
        None => Ok(provided.then(workers::plan_delayed_start(engine, claim, pod).await?)),
    }
}

/// What a pod that was created waits for: scratch space, and the CA certificates of the cluster's proxy.
async fn plan_needs(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<Plan, Error> {
    let config = engine.config();
    let target = workers::filled_for(engine, claim);
    let namespace = &engine.settings.installation.namespace;
    let map;
    let authority = match worker::proxy_authority(config.as_deref()) {
        None => ProxyAuthority::Unset,
        Some(name) => {
            map = engine.api.get::<ConfigMap>(namespace, name).await?;
            match &map {
                None => ProxyAuthority::Missing { namespace, name },
                Some(map) => ProxyAuthority::Present(map),
            }
        }
    };
    let installation = &engine.settings.installation;
    let copied = import::plan_proxy_copy(claim, target.as_deref(), pod, authority, installation);
    if !scratch::is_needed(claim) {
        return Ok(copied);
    }
    let obstructed = bound::obstructed(claim, reason::CREATING_SCRATCH_SPACE, CREATING_SCRATCH);
    let obstructed = Plan::writes(Write::annotations(claim, &obstructed));
    Ok(plan_scratch(engine, claim, pod).then(copied).then(obstructed))
}

/// Scratch space for a worker that requires it.
pub fn plan_scratch(engine: &Engine, claim: &PersistentVolumeClaim, pod: &Pod) -> Plan {
    let config = engine.config();
    let classes = engine.classes();
    let scratch = || {
        scratch::object(&scratch::Facts {
            claim,
            pod,
            classes: &classes,
            config: config.as_ref().and_then(|config| config.status.as_ref()),
            installation: &engine.settings.installation,
        })
    };
    let target = workers::filled_for(engine, claim);
    let present = scratch_named(engine, claim);
    import::plan_scratch(claim, target.as_deref(), pod, present.as_deref(), scratch)
}

/// The scratch space that a worker requires, once it exists.
fn scratch_of(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    scratch_named(engine, claim).filter(|_| scratch::is_needed(claim))
}

fn scratch_named(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let name = names::scratch_pvc(meta::name(&claim.metadata));
    engine.api.caches.claims.get(meta::namespace(&claim.metadata), &name)
}
