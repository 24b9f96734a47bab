//! What the controllers of worker pods share.

mod start;
mod warnings;

use std::sync::Arc;

use api::labels::{self, component};
use api::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use crate::engine::Engine;
use crate::engine::cache::key_of;
use controller_core::claim_kind::prime_target;
use controller_core::meta;
use controller_core::refusal::RefusalReport;
use controller_core::{bound, worker};

pub use start::{admit, plan_delayed_start, pods_with};
pub use warnings::execute_with_warnings;

/// The importer pod of a PVC, if it exists.
pub fn importer_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<Pod>> {
    let namespace = meta::namespace(&claim.metadata);
    let pod = engine.api.caches.pods.get(namespace, &worker::pod_name(claim))?;
    let is_importer = meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER);
    (is_importer && worker::works_for(&pod, claim)).then_some(pod)
}

/// The PVC whose importer a pod is. A client that gives a pod our labels, or a PVC as owner, does not make it an importer.
pub fn claim_of_importer(engine: &Engine, pod: &Pod) -> Option<Arc<PersistentVolumeClaim>> {
    let names: Vec<&str> = match meta::controller(&pod.metadata) {
        Some(owner) => vec![&owner.name],
        None => worker::claims_in(pod).collect(),
    };
    let namespace = meta::namespace(&pod.metadata);
    names.into_iter().find_map(|name| {
        let claim = engine.api.caches.claims.get(namespace, name)?;
        let importer = importer_of(engine, &claim)?;
        (importer.metadata.uid == pod.metadata.uid).then_some(claim)
    })
}

/// How users learn that a worker pod of a PVC cannot be created.
pub fn refused_pod(
    engine: &Engine,
    component: &'static str,
    claim: &PersistentVolumeClaim,
    pod: &str,
) -> RefusalReport {
    let target = filled_for(engine, claim);
    let audience = bound::audience(component, claim, target.as_deref());
    RefusalReport::of_worker(key_of(claim), pod, audience)
}

/// The PVC that this one is filled for: that very one, and no other of its name.
pub fn filled_for(
    engine: &Engine,
    prime: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let key = prime_target(&prime.metadata)?;
    let target = engine.api.caches.claims.get(&key.namespace, &key.name)?;
    let is_it = names::prime_pvc(meta::uid(&target.metadata)) == meta::name(&prime.metadata);
    is_it.then_some(target)
}
