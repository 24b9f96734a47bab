//! What the controllers of workers have in common.

use api::ClaimPhase;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::annotations::state;
use api::labels::{self, component};
use api::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use runtime::decoded::{Decoded, decodable};

use super::POLL;
use crate::engine::cache::key_of;
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::claim_kind::prime_target;
use controller_core::event::Event;
use controller_core::import::Begin;
use controller_core::meta::{self, Changes, Pairs};
use controller_core::object::Writable;
use controller_core::plan::{ObjectEvent, Plan, Requeue, Write};
use controller_core::refusal::RefusalReport;
use controller_core::{bound, classes, clone, worker};

/// Pods that are not done yet; those that are have let go of their claims.
const AT_WORK: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A worker that has not begun by then has met with something.
const ON_ITS_WAY_MAX: Duration = Duration::from_secs(10);
/// How soon to ask again what that is.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The importer of a claim, where there is one.
pub fn importer_of(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<Arc<Pod>> {
    let namespace = meta::namespace(&claim.metadata);
    let pod = engine.api.caches.pods.get(namespace, &worker::pod_name(claim))?;
    let is_importer = meta::label(&pod.metadata, labels::COMPONENT) == Some(component::IMPORTER);
    (is_importer && worker::works_for(&pod, claim)).then_some(pod)
}

/// The claim whose importer a pod is. Whoever gives a pod our labels, or a claim as its owner, gives no claim an importer.
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

/// Whether a worker is to be made for a claim now: the claim then, with the worker's name on it. Who uses the claim is
/// asked only where all else says that the worker may begin.
pub async fn admit(
    engine: &Engine,
    component: &'static str,
    claim: Arc<PersistentVolumeClaim>,
    begin: impl Fn(&PersistentVolumeClaim, &[Pod]) -> Begin,
) -> Result<ControlFlow<Requeue, Arc<PersistentVolumeClaim>>, Error> {
    if let Begin::Never | Begin::Wait = begin(&claim, &[]) {
        return Ok(ControlFlow::Break(Requeue::OnChange));
    }
    // Its watch tells when it is.
    if meta::claim_phase(&claim) != ClaimPhase::Bound && is_bound_by_itself(engine, &claim) {
        return Ok(ControlFlow::Break(Requeue::OnChange));
    }
    let users = pods_using(engine, &claim).await?;
    match begin(&claim, &users) {
        Begin::Never | Begin::Wait => Ok(ControlFlow::Break(Requeue::OnChange)),
        Begin::Busy(event) => {
            record(engine, component, claim.as_ref(), [event]).await?;
            Ok(ControlFlow::Break(Requeue::After(POLL)))
        }
        Begin::Note(changes) => {
            let claim = note(engine, claim, &Pairs::new(), &changes).await?;
            Ok(ControlFlow::Continue(claim))
        }
        Begin::Create => Ok(ControlFlow::Continue(claim)),
    }
}

/// Whether the storage makes a volume for a claim without anybody who wants to mount it. A worker that is made before has to
/// be placed twice, and until then looks like one that no node takes.
fn is_bound_by_itself(engine: &Engine, claim: &PersistentVolumeClaim) -> bool {
    let classes = engine.classes();
    let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class = classes::of_claim(&classes, name);
    class.is_some_and(|class| !classes::waits_for_consumer(class))
}

/// The pods that have a claim mounted. Read from the API server, once before a worker is made: following all pods of a
/// cluster would cost more than all the rest. Claims that a populator made are nobody else's.
pub async fn pods_using(engine: &Engine, claim: &PersistentVolumeClaim) -> Result<Vec<Pod>, Error> {
    let is_helper =
        prime_target(&claim.metadata).is_some() || clone::owner_uid(&claim.metadata).is_some();
    if is_helper {
        return Ok(Vec::new());
    }
    pods_with(engine, meta::namespace(&claim.metadata), meta::name(&claim.metadata)).await
}

/// The pods of a namespace that have the claim of this name mounted, whoever made it.
pub async fn pods_with(engine: &Engine, namespace: &str, name: &str) -> Result<Vec<Pod>, Error> {
    let pods = Api::<Decoded<Pod>>::namespaced(engine.api.client(), namespace);
    let list = pods.list(&ListParams::default().fields(AT_WORK)).await;
    let list = list.map_err(|source| Error::Api {
        action: "list",
        kind: "pods of the namespace".into(),
        name: namespace.into(),
        source: Box::new(source),
    })?;
    Ok(decodable(list).into_iter().filter(|pod| worker::mounts(pod, name)).collect())
}

/// Minds a worker that has been made and does not run yet. After a while the claim says what holds it up: a Secret or
/// ConfigMap that is not there, a volume that no node can mount. Only the events of its pod tell that.
pub async fn mind_start(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Requeue, Error> {
    match rest_of_its_way(engine, pod) {
        None => return Ok(Requeue::OnChange),
        Some(Duration::ZERO) => {}
        Some(rest) => return Ok(Requeue::After(rest)),
    }
    if let Some(told) = engine.pod_warnings.last(&engine.api, pod).await? {
        let mut changes = Changes::default();
        let present = &claim.metadata;
        changes.set(present, state::RUNNING, "false");
        changes.set(present, state::RUNNING_REASON, told.reason);
        changes.set(present, state::RUNNING_MESSAGE, told.message);
        note(engine, claim, &Pairs::new(), &changes).await?;
    }
    Ok(Requeue::After(ASK_AGAIN))
}

/// For how long a worker may still be on its way before somebody asks why. `None`: nobody knows when it was made.
pub fn rest_of_its_way(engine: &Engine, pod: &Pod) -> Option<Duration> {
    let made = pod.metadata.creation_timestamp.as_ref()?;
    let age = Duration::try_from(engine.now().duration_since(made.0)).unwrap_or_default();
    Some(ON_ITS_WAY_MAX.saturating_sub(age))
}

/// Writes labels and annotations, if there are any to write, and returns the PVC as it is then.
pub async fn note(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    labels: &Pairs,
    annotations: &Changes,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let write = Write::metadata(claim.as_ref(), labels, annotations);
    write_one(engine, claim, write).await
}

/// Executes a write to an object, if there is one, and returns the object as it is then.
pub async fn write_one<K: Writable>(
    engine: &Engine,
    object: Arc<K>,
    write: Option<Write>,
) -> Result<Arc<K>, Error> {
    let applied = engine.execute(Plan::writes(write)).await?;
    Ok(applied.latest().map_or(object, Arc::new))
}

/// Writes down why a PVC is not bound, or that it is.
pub async fn note_complaints(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let changes = engine.bound_annotations(&claim);
    if meta::claim_phase(&claim) == ClaimPhase::Bound {
        let (namespace, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
        engine.pvc_warnings.forget(namespace, name);
    }
    note(engine, claim, &Pairs::new(), &changes).await
}

/// Forwards the warnings about a prime PVC to its target, which users see.
pub async fn hand_on(
    engine: &Engine,
    component: &'static str,
    target: Arc<PersistentVolumeClaim>,
    prime: Option<&PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let (namespace, name) = (meta::namespace(&target.metadata), meta::name(&target.metadata));
    if let Some(prime) = prime {
        let (of_prime, prime_name) =
            (meta::namespace(&prime.metadata), meta::name(&prime.metadata));
        let of_prime = match meta::claim_phase(prime) {
            ClaimPhase::Bound | ClaimPhase::Lost => {
                engine.pvc_warnings.forget(of_prime, prime_name);
                Vec::new()
            }
            _ => engine.pvc_warnings.of(of_prime, prime_name),
        };
        let of_target = engine.pvc_warnings.of(namespace, name);
        let events = bound::handed_on_events(prime_name, &of_prime, &of_target);
        for event in &events {
            let at = Some(engine.now());
            let seen = bound::Seen { event: event.clone(), at };
            engine.pvc_warnings.note(Key::new(namespace, name), seen);
        }
        record(engine, component, target.as_ref(), events).await?;
    }
    note_complaints(engine, target).await
}

/// Records events about an object.
pub async fn record<K: Writable>(
    engine: &Engine,
    component: &'static str,
    object: &K,
    events: impl IntoIterator<Item = Event>,
) -> Result<(), Error> {
    let mut plan = Plan::default();
    plan.record(component, object, events);
    engine.execute_and_report(plan).await.map(drop)
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

/// Events about a PVC that is being filled, and its warnings about the PVC that it is filled for.
pub fn events_about(
    engine: &Engine,
    component: &'static str,
    claim: &PersistentVolumeClaim,
    events: &[Event],
) -> Vec<ObjectEvent> {
    let target = filled_for(engine, claim);
    bound::events_about(component, claim, target.as_deref(), events)
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
