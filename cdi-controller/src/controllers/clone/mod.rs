//! Claims that refer to a VolumeCloneSource: filled by the storage or by pods, in the namespace of the source, and given the
//! volume when it is complete.

mod tidy;

use api::ClaimPhase;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::events;
use api::v1beta1::VolumeCloneSource;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;

use super::clone_facts::{self as facts, Found, Parts};
use super::workers;
use crate::engine::api_client::Kind;
use crate::engine::cache::key_of;
use crate::engine::index::Term;
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, chain, rights, scrape};
use controller_core::claim_kind::is_clone_target;
use controller_core::clone::{
    self as plan, Action, ChosenClass, ClonePlan, Decision, Facts, Names, Origin, Phase, Progress,
    Refusal, Source, Step, Wait,
};
use controller_core::components::CLONE_POPULATOR as COMPONENT;
use controller_core::event::Event;
use controller_core::meta::{self, Pairs};
use controller_core::object::Writable;
use controller_core::plan::{Plan, Requeue, Write, metadata_patch};
use controller_core::refusal::{CauseText, OnRefused, PvcNote, RefusalReport, ReportedFailures};
use controller_core::snapshot::VolumeSnapshot;
use controller_core::{bound, claim, copy, worker};

/// How soon a clone looks again whether it is its turn. Whoever is done tells nobody.
const TURN: Duration = Duration::from_secs(5);

/// Brings one clone one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(target) = context.cluster.stores.claims.get(&key.namespace, &key.name) else {
        context.complaints.forget(&key.namespace, &key.name);
        return Ok(Next::Wait);
    };
    let is_leaving = target.metadata.deletion_timestamp.is_some();
    let is_bound = meta::claim_phase(&target) == ClaimPhase::Bound;
    let has_begun = plan::has_finalizer(&target.metadata);
    if !is_clone_target(&target) || !has_begun && (is_leaving || is_bound) {
        return Ok(Next::Wait);
    }
    if is_leaving {
        return tidy::finish(&context, target).await;
    }
    if is_bound {
        let helper = tidy::helper(&context, &target);
        let target = workers::note_complaints(&context, target).await?;
        let target = progress(&context, target, Phase::Succeeded, "", helper.as_deref()).await?;
        return tidy::finish(&context, target).await;
    }
    let outcome = advance(&context, target).await;
    if let Err(error) = &outcome
        && error.is_of_clone()
        && let Some(target) = context.cluster.stores.claims.get(&key.namespace, &key.name)
    {
        let changes = plan::stuck(&target.metadata, &chain(error));
        workers::note(&context, target, &Pairs::new(), &changes).await?;
    }
    outcome
}

async fn advance(context: &Context, target: Arc<PersistentVolumeClaim>) -> Result<Next, Error> {
    // It tells when there is one, and until then this is a claim like any other.
    let Some(source) = facts::clone_source(context, &target) else { return Ok(Next::Wait) };
    if !facts::is_placed(context, &target) {
        return Ok(Next::Wait);
    }
    let namespace = meta::namespace(&source.metadata);
    let origin = Origin::referred_to(namespace, &source.spec.source)
        .ok_or_else(|| Error::NoOrigin { name: meta::name(&source.metadata).to_owned() })?;
    if rights::is_awaited(&origin, &target.metadata) {
        return Ok(Next::Wait);
    }
    allow(context, &origin, &target).map_err(|error| without_origin(error, &source))?;
    let Some(found) = facts::find(context, &origin) else {
        let message = format!("The source {} doesn't exist", origin.named());
        let event = Event::warning(events::CLONE_WITHOUT_SOURCE, message);
        workers::record(context, COMPONENT, target.as_ref(), [event]).await?;
        let waits_for = format!("the {origin}");
        progress(context, target, Phase::Pending, &waits_for, None).await?;
        return Ok(Next::Wait);
    };
    let Some((target, plan)) = decided(context, target, &origin, &found).await? else {
        return Ok(Next::Wait);
    };
    let names = Names::of(meta::uid(&target.metadata), &plan);
    let uid = meta::uid(&target.metadata).to_owned();
    let parts = Parts::of(context, &origin.namespace, &uid, &names);
    let target = workers::hand_on(context, COMPONENT, target, parts.claim()).await?;
    let limit = context.settings.clones_max.filter(|_| !plan::has_begun(&parts.temporary()));
    let slot = limit.map(|most| {
        let class = meta::storage_class_name(&target).unwrap_or_default();
        let at_work = || at_work(context, &target);
        context.clone_slots.reserve(class, key_of(target.as_ref()), at_work, most).ok_or(most)
    });
    if let Some(Err(most)) = slot {
        return queue(context, target, most).await;
    }
    let step = step(context, &target, &source, &found, &plan, &parts).await?;
    apply(context, Arc::clone(&target), &origin, &parts, step).await
}

/// Whether the claim may have what it asks for: within a namespace always, from another one with a token that says so.
fn allow(context: &Context, origin: &Origin, target: &PersistentVolumeClaim) -> Result<(), Error> {
    let metadata = &target.metadata;
    if origin.namespace == meta::namespace(metadata) {
        return Ok(());
    }
    let key = api::annotations::state::DATA_SOURCE_NAMESPACE;
    if meta::annotation(metadata, key) != Some(origin.namespace.as_str()) {
        return Err(Error::NoGrant);
    }
    rights::check_claim(context, origin, metadata)
}

/// Whoever writes a claim may name any VolumeCloneSource, and is not told what that refers to.
fn without_origin(error: Error, source: &VolumeCloneSource) -> Error {
    let metadata = &source.metadata;
    let name = format!("VolumeCloneSource {}/{}", meta::namespace(metadata), meta::name(metadata));
    match error {
        Error::NoRight { target, source, .. } => Error::NoRight { origin: name, target, source },
        error => error,
    }
}

/// The way, as it was noted before, or as it is decided and noted now. `None`: nothing can be decided yet.
async fn decided(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    found: &Found,
) -> Result<Option<(Arc<PersistentVolumeClaim>, ClonePlan)>, Error> {
    let class = match found {
        Found::Claim(claim) => facts::class_for_snapshot(context, claim, &target).await?,
        Found::Snapshot(_) => None,
    };
    let class_name = class.as_ref().map(|class| class.name.as_str());
    if let Some(plan) = plan::noted_plan(&target.metadata, origin.kind, class_name) {
        return Ok(Some((target, plan)));
    }
    if !facts::is_profiled(context, &target) {
        let waits_for = "the StorageProfile of its storage class";
        progress(context, target, Phase::Pending, waits_for, None).await?;
        return Ok(None);
    }
    let content = match found {
        Found::Snapshot(snapshot) => facts::content_of(context, snapshot).await?,
        Found::Claim(_) => None,
    };
    let of = facts::of_decision(context, &target, found, content.as_ref(), class.as_ref())?;
    match plan::plan_clone(&of) {
        Decision::Wait(Wait::ForClass | Wait::ForSource) => Ok(None),
        Decision::Refuse(refusal) => {
            if let Refusal::TooSmall { .. } | Refusal::ModeOfFiles = &refusal {
                let words = refusal.to_string();
                let told = [
                    Event::warning(events::INCOMPATIBLE_PVC, words.as_str()),
                    Event::warning(events::CLONE_VALIDATION_FAILED, words),
                ];
                workers::record(context, COMPONENT, target.as_ref(), told).await?;
            }
            Err(Error::CloneRefused(refusal))
        }
        Decision::Clone(plan) => {
            let target = note_decision(context, target, &plan, class.as_ref()).await?;
            Ok(Some((target, plan)))
        }
    }
}

/// In one write: who sees the decision sees that somebody is going to tidy up.
async fn note_decision(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    plan: &ClonePlan,
    class: Option<&ChosenClass>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let mut changes = plan::decided(&target.metadata, plan);
    changes.set(&target.metadata, api::annotations::state::CLONE_PHASE, Phase::Pending.as_str());
    let labels = plan::target_labels(&target);
    let mut finalizers = target.metadata.finalizers.clone().unwrap_or_default();
    if !plan::has_finalizer(&target.metadata) {
        finalizers.push(api::labels::finalizer::CLONE_POPULATOR.to_owned());
    }
    let patch = metadata_patch(&labels, &changes);
    let mut patch = patch.unwrap_or_else(|| json!({ "metadata": {} }));
    patch["metadata"]["finalizers"] = json!(finalizers);
    let fallback = plan.fallback();
    let mut told: Vec<_> =
        fallback.map(|why| Event::warning(why.reason(), why.to_string())).into_iter().collect();
    if let (ClonePlan::Snapshot { .. }, Some(class)) = (plan, class) {
        told.push(class.event());
    }
    let mut executed = Plan::writes([Write::guarded_patch(target.as_ref(), patch)]);
    executed.record(COMPONENT, target.as_ref(), told);
    let applied = context.execute(executed).await?;
    let target = applied.latest().map_or(target, Arc::new);
    context.report(applied).await?;
    Ok(target)
}

/// The clones to the storage class of this one that are at work. What looks like a helper is one only if a claim that we clone
/// to has it, in the right place and by the right name.
fn at_work(context: &Context, target: &PersistentVolumeClaim) -> Vec<Key> {
    let stores = &context.cluster.stores;
    let claims = stores.claims.find(&Term::Helper);
    let snapshots = stores.snapshots.find(&Term::Helper);
    let marked = claims.iter().map(|claim| &claim.metadata);
    let marked = marked.chain(snapshots.iter().map(|snapshot| &snapshot.metadata));
    let owners: HashSet<&str> = marked.filter_map(plan::owner_uid).collect();
    let of_class = meta::storage_class_name(target);
    let is_at_work = |target: &PersistentVolumeClaim| {
        let metadata = &target.metadata;
        let namespace = facts::source_namespace(target).unwrap_or(meta::namespace(metadata));
        let names = Names::noted(metadata);
        let parts = Parts::of(context, namespace, meta::uid(metadata), &names);
        plan::is_at_work(&parts.temporary(), context.now())
    };
    let all = owners.into_iter().flat_map(|uid| stores.claims.find(&Term::ClonedTo(uid.into())));
    let mut all: Vec<_> = all.collect();
    all.retain(|claim| {
        is_clone_target(claim)
            && plan::has_finalizer(&claim.metadata)
            && meta::storage_class_name(claim) == of_class
            && is_at_work(claim)
    });
    all.iter().map(|claim| key_of(claim.as_ref())).collect()
}

/// It is not the turn of this one.
async fn queue(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    most: usize,
) -> Result<Next, Error> {
    let waits_for = format!("one of {most} clones to its storage class to be done");
    let progress = Progress {
        phase: Phase::Pending,
        waits_for: &waits_for,
        is_queued: true,
        claim: None,
        measured: None,
    };
    let changes = plan::progressed(&target.metadata, &progress);
    workers::note(context, target, &Pairs::new(), &changes).await?;
    Ok(Next::After(TURN))
}

/// What is to be done next.
async fn step(
    context: &Context,
    target: &PersistentVolumeClaim,
    clone_source: &VolumeCloneSource,
    found: &Found,
    plan: &ClonePlan,
    parts: &Parts,
) -> Result<Step, Error> {
    let temporary = parts.temporary();
    let reads_source = matches!(plan, ClonePlan::CsiClone | ClonePlan::Snapshot { .. })
        && temporary.claim.is_none()
        && temporary.snapshot.is_none();
    let pods = match found {
        Found::Claim(claim) if reads_source => {
            let metadata = &claim.metadata;
            workers::pods_with(context, meta::namespace(metadata), meta::name(metadata)).await?
        }
        _ => Vec::new(),
    };
    let content = match (found, plan) {
        (Found::Snapshot(snapshot), ClonePlan::RestoreAndCopy { .. })
            if temporary.source_claim.is_none() && temporary.claim.is_none() =>
        {
            facts::content_of(context, snapshot).await?
        }
        _ => None,
    };
    let (writers, state);
    let source = match found {
        Found::Claim(claim) => {
            writers = plan::writers(&pods, meta::name(&claim.metadata));
            let populated = facts::is_filled(context, claim);
            Source::Claim { claim, populated, writers: &writers }
        }
        Found::Snapshot(snapshot) => {
            state = plan::state_of(snapshot, content.as_ref());
            Source::Snapshot(&state)
        }
    };
    let class = facts::class_of(context, target);
    let restore_class = facts::restore_class(context, parts, content.as_ref());
    let profile = facts::profile_of(context, target);
    let said = profile.as_ref().and_then(|profile| {
        meta::annotation(&profile.metadata, api::annotations::request::CLONE_FALLBACK_AFTER)
    });
    let config = context.config();
    let placement = context.placement();
    let namespace = meta::namespace(&clone_source.metadata);
    let facts = Facts {
        target,
        source,
        plan,
        temporary,
        class: class.as_deref(),
        restore_class: restore_class.as_deref(),
        preallocation: claim::preallocation(clone_source.spec.preallocation, config.as_deref()),
        priority_class: plan::chosen_priority_class(clone_source)
            .or(worker::priority_class_in(namespace, &target.metadata)),
        patience: plan::patience(said),
        now: context.now(),
        image: &context.settings.cloner_image,
        placement: placement.as_ref(),
        config: config.as_deref(),
        installation: &context.settings.installation,
    };
    plan::advance(&facts).map_err(Error::Clone)
}

/// What is noted comes before what is done: a way that was given up, above all.
async fn apply(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    parts: &Parts,
    step: Step,
) -> Result<Next, Error> {
    let Step { phase, actions, events, waits_for, look_again, fallback } = step;
    let target = match fallback {
        Some(because) => {
            let copy = ClonePlan::Copy { because: Some(because) };
            let changes = plan::decided(&target.metadata, &copy);
            workers::note(context, target, &Pairs::new(), &changes).await?
        }
        None => target,
    };
    let target = progress(context, target, phase, &waits_for, parts.claim()).await?;
    workers::record(context, COMPONENT, target.as_ref(), events).await?;
    let all = actions.into_iter();
    let writes = all.filter_map(|action| write(context, &target, &origin.namespace, action));
    let plan =
        Plan { writes: writes.collect(), requeue: Requeue::after(look_again), ..Plan::default() };
    execute(context, &target, plan).await.map(Next::from)
}

/// Notes on the target how far it is.
async fn progress(
    context: &Context,
    target: Arc<PersistentVolumeClaim>,
    phase: Phase,
    waits_for: &str,
    helper: Option<&PersistentVolumeClaim>,
) -> Result<Arc<PersistentVolumeClaim>, Error> {
    let measured = match helper.filter(|_| phase == Phase::HostClone) {
        Some(helper) => measure(context, helper).await,
        None => None,
    };
    let progress = Progress { phase, waits_for, is_queued: false, claim: helper, measured };
    let changes = plan::progressed(&target.metadata, &progress);
    workers::note(context, target, &Pairs::new(), &changes).await
}

/// How far the pod is that reads for a claim.
pub async fn measure(context: &Context, claim: &PersistentVolumeClaim) -> Option<f64> {
    let source = Origin::requested(&claim.metadata)?;
    let name = copy::pod_name(&claim.metadata);
    let pod = context.cluster.stores.pods.get(&source.namespace, &name)?;
    scrape::percentage(&pod, scrape::CLONE).await
}

/// Executes a plan for a clone. Users learn on the target of a quota that does not suffice.
async fn execute(
    context: &Context,
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
    context.carry_out(plan).await
}

/// The write of an action. `None` where the object is gone, or terminating.
fn write(
    context: &Context,
    target: &PersistentVolumeClaim,
    namespace: &str,
    action: Action,
) -> Option<Write> {
    let stores = &context.cluster.stores;
    match action {
        Action::CreateClaim(claim) => Some(Write::create(*claim)),
        Action::CreatePod(pod) => Some(Write::create(*pod)),
        Action::CreateSnapshot(snapshot) => Some(Write::create(snapshot.into_object())),
        Action::RaiseRequest { claim, to } => {
            let claim = stores.claims.get(namespace, &claim)?;
            let size = claim::quantity(to);
            let merge = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
            Some(Write::patch(claim.as_ref(), merge))
        }
        Action::Rebind { volume, to } => {
            let volume = stores.persistent_volumes.get("", &volume)?;
            let name = meta::name(&volume.metadata);
            tracing::info!("rebinding PersistentVolume {name} to PVC {}", key_of(target));
            Some(Write::rebind(&volume, &to))
        }
        Action::DeleteClaim(name) => {
            context.complaints.forget(namespace, &name);
            delete::<PersistentVolumeClaim>(context, namespace, &name)
        }
        Action::DeleteSnapshot(name) => delete::<VolumeSnapshot>(context, namespace, &name),
        Action::DeletePod(name) => delete::<Pod>(context, namespace, &name),
    }
}

/// Deletes the object that the cache has, or whichever has its name: only clones make such names.
fn delete<K: Kind + Writable>(context: &Context, namespace: &str, name: &str) -> Option<Write> {
    let known = K::store(&context.cluster.stores).and_then(|store| store.get(namespace, name));
    match known {
        Some(object) => Write::delete(object.as_ref()),
        None => Some(Write::delete_named::<K>(namespace, name)),
    }
}
