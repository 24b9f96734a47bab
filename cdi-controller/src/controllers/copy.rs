//! Claims that pods copy to: the pod that reads the source, once the server beside the target is there.

use api::{ClaimPhase, PodPhase};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::annotations::{request, state};
use api::conditions::reason;
use api::events;
use api::labels::finalizer;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use super::{POLL, clone_facts as facts, credentials, restored, upload, workers};
use crate::engine::cache::key_of;
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error, rights};
use controller_core::bound;
use controller_core::clone::{self, Origin, OriginKind};
use controller_core::components::HOST_COPY as COMPONENT;
use controller_core::copy::{self as plan, Stage};
use controller_core::event::Event;
use controller_core::meta::{self, Changes, Pairs};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{OnRefused, PvcNote, RefusalReport};

/// How soon to look again at a pod that waits for both volumes.
const LOOK: Duration = Duration::from_secs(15);

/// Brings one copy one step on.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    if let Some(next) = restored::mind(&context, &key).await? {
        return Ok(next);
    }
    let Some(claim) = context.cluster.stores.claims.get(&key.namespace, &key.name) else {
        return Ok(Next::Wait);
    };
    let Some(source) = Origin::requested(&claim.metadata) else { return Ok(Next::Wait) };
    let name = plan::pod_name(&claim.metadata);
    let pod = context.cluster.stores.pods.get(&source.namespace, &name);
    match plan::stage(&claim) {
        Stage::Over => end(&context, claim, &source, pod.as_deref()).await,
        Stage::Waiting if pod.is_none() => Ok(Next::Wait),
        Stage::Waiting | Stage::Ready => match pod {
            // The one with both volumes was given up, and is on its way out.
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Next::After(POLL)),
            // It was noted that this one is given up, and nothing more.
            Some(pod) if plan::has_both(&pod) && !plan::is_beside(&claim.metadata) => {
                let plan = Plan::writes(Write::delete(pod.as_ref()));
                context.carry_out(plan).await?;
                Ok(Next::After(POLL))
            }
            Some(pod) => follow(&context, claim, &source, &pod).await,
            None => begin(&context, claim, &source).await,
        },
    }
}

async fn begin(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
) -> Result<Next, Error> {
    // The server has all, and the pod that sent it is gone.
    if meta::worker_phase(&claim.metadata) == PodPhase::Succeeded {
        let mut changes = Changes::default();
        changes.set(&claim.metadata, state::CLONE_OF, "true");
        workers::note(context, claim, &Pairs::new(), &changes).await?;
        return Ok(Next::Wait);
    }
    // Of what the right is: the snapshot, where the claim was made of one.
    let copied = Origin::copied(&claim.metadata).unwrap_or_else(|| origin.clone());
    if rights::is_awaited(&copied, &claim.metadata) {
        return Ok(Next::Wait);
    }
    if origin.namespace != meta::namespace(&claim.metadata) {
        rights::check_claim(context, &copied, &claim.metadata)?;
    }
    let stores = &context.cluster.stores;
    let source = stores.claims.get(&origin.namespace, &origin.name);
    if copied.kind == OriginKind::Snapshot {
        let source = source.as_deref();
        let may = source.map(|source| restored::may_be_read(context, &claim, source, &copied));
        // Its DataVolume minds what is made of the snapshot, and tells.
        if !may.transpose()?.unwrap_or(false) {
            return Ok(Next::Wait);
        }
    }
    let Some(source) = source else {
        let message = format!("The source {} doesn't exist", origin.named());
        let event = Event::warning(events::CLONE_WITHOUT_SOURCE, message);
        tell(context, &claim, vec![event]).await?;
        return Ok(Next::Wait);
    };
    if meta::claim_phase(&source) != ClaimPhase::Bound || !facts::is_filled(context, &source) {
        let waits_for = format!("{} to be filled", origin.name);
        note_waiting(context, claim, reason::PENDING, &waits_for).await?;
        return Ok(Next::After(POLL));
    }
    // Between the helper claims of a populator all has been looked at before.
    if clone::owner_uid(&claim.metadata).is_none()
        && let Err(mismatch) = fits(context, &source, &claim)
    {
        tell(context, &claim, vec![mismatch.event()]).await?;
        return Ok(Next::Wait);
    }
    let pods = workers::pods_with(context, &origin.namespace, &origin.name).await?;
    let writers = clone::writers(&pods, &origin.name);
    if !writers.is_empty() {
        let events = clone::events_of_writers(&origin.namespace, &writers, &origin.name);
        tell(context, &claim, events).await?;
        let waits_for = clone::free_of(&origin.name, &writers);
        note_waiting(context, claim, events::CLONE_SOURCE_IN_USE, &waits_for).await?;
        return Ok(Next::After(POLL));
    }
    let mut changes = Changes::default();
    let name = plan::pod_name(&claim.metadata);
    changes.set(&claim.metadata, state::CLONE_SOURCE_POD_NAME, name.as_str());
    let claim = workers::note(context, claim, &Pairs::new(), &changes).await?;
    let held = Write::add_finalizer(claim.as_ref(), finalizer::CLONE_SOURCE);
    let claim = workers::write_one(context, claim, held).await?;
    make(context, claim, origin, &source).await
}

/// What the reader waits for is said where later stands how it gets on, so that the DataVolume says it.
async fn note_waiting(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    reason: &str,
    waits_for: &str,
) -> Result<(), Error> {
    let message = format!("Waits for {waits_for}");
    let changes = plan::not_running(&claim.metadata, reason, &message);
    workers::note(context, claim, &Pairs::new(), &changes).await.map(|_| ())
}

async fn make(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    source: &PersistentVolumeClaim,
) -> Result<Next, Error> {
    let name = plan::pod_name(&claim.metadata);
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let authority = match plan::is_beside(&claim.metadata) {
        true => None,
        false => Some(credentials::bundle(context, "cdi-uploadserver-signer-bundle")?),
    };
    let secret = plan::secret_name(&claim.metadata, &credentials::random_suffix()?);
    let config = context.config();
    let placement = context.placement();
    let pod = plan::pod(&plan::Facts {
        claim: &claim,
        source,
        authority: authority.as_deref(),
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &context.settings.image,
        cloner: &context.settings.cloner_image,
        metrics_key: &key.to_text(),
        secret: &secret,
        installation: &context.settings.installation,
    });
    let seen = seen_by_users(context, &claim);
    let audience = bound::audience(COMPONENT, seen.as_deref().unwrap_or(&claim), None);
    let report = RefusalReport {
        note: Some((key_of(claim.as_ref()), PvcNote::CopyNotRunning)),
        ..RefusalReport::of_worker(key_of(claim.as_ref()), &name, audience)
    };
    let executed = Plan {
        writes: vec![Write::create(pod)],
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    };
    let applied = context.execute(executed).await?;
    match applied.latest::<Pod>() {
        Some(_) if authority.is_none() => Ok(Next::After(LOOK)),
        Some(pod) => provide_secret(context, &claim, origin, &pod).await.map(|()| Next::Wait),
        None => Ok(Next::After(POLL)),
    }
}

async fn follow(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    pod: &Pod,
) -> Result<Next, Error> {
    let phase = meta::pod_phase(pod);
    let is_waiting = phase.is_waiting();
    let is_beside = plan::is_beside(&claim.metadata);
    if is_waiting && is_beside && plan::is_hopeless(pod, context.now()) {
        return part(context, claim, pod).await;
    }
    if is_waiting && !is_beside {
        provide_secret(context, &claim, origin, pod).await?;
    }
    let plan = plan::plan(&claim.metadata, pod);
    let noted = Write::annotations(claim.as_ref(), &plan.annotations);
    // It was put off its node, and nobody starts it again. Another one takes its place.
    let deleted = if phase == PodPhase::Failed { Write::delete(pod) } else { None };
    let mut executed = Plan::writes(noted.into_iter().chain(deleted));
    executed.record(COMPONENT, claim.as_ref(), plan.events);
    executed.requeue = Requeue::after((is_waiting && is_beside).then_some(LOOK));
    context.carry_out(executed).await.map(Next::from)
}

/// No node has both volumes: two pods, then. It is noted first, as the claim is what the server's controller looks at.
async fn part(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    pod: &Pod,
) -> Result<Next, Error> {
    let mut changes = Changes::default();
    changes.set(&claim.metadata, state::CLONE_BESIDE, "false");
    changes.set(&claim.metadata, state::POD_PHASE, "Pending");
    let noted = Write::annotations(claim.as_ref(), &changes);
    let plan = Plan::writes(noted.into_iter().chain(Write::delete(pod)));
    context.carry_out(plan).await.map(Next::from)
}

/// The pod goes, unless somebody wants to look at it, and then the claim may.
async fn end(
    context: &Context,
    claim: Arc<PersistentVolumeClaim>,
    source: &Origin,
    pod: Option<&Pod>,
) -> Result<Next, Error> {
    if !plan::has_finalizer(&claim.metadata) {
        return Ok(Next::Wait);
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
    context.carry_out(Plan::writes(deleted.into_iter().chain(released))).await.map(Next::from)
}

fn fits(
    context: &Context,
    source: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
) -> Result<(), plan::Mismatch> {
    let room = facts::room(context, source).zip(facts::room(context, claim));
    plan::check(source, claim, room)
}

/// The target of the clone that a temporary PVC belongs to, which users see.
fn seen_by_users(
    context: &Context,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let (namespace, name) = clone::owner(&claim.metadata)?;
    let target = context.cluster.stores.claims.get(namespace, name)?;
    let uid = clone::owner_uid(&claim.metadata)?;
    (meta::uid(&target.metadata) == uid).then_some(target)
}

/// Records events about the PVC that users see.
async fn tell(
    context: &Context,
    claim: &PersistentVolumeClaim,
    events: Vec<Event>,
) -> Result<(), Error> {
    let target = seen_by_users(context, claim);
    workers::record(context, COMPONENT, target.as_deref().unwrap_or(claim), events).await
}

/// What the pod proves itself with. The name is worked out, and never read from the claim: its owner may write there, and
/// would be given the name of the upload proxy, which every server believes.
async fn provide_secret(
    context: &Context,
    claim: &PersistentVolumeClaim,
    origin: &Origin,
    pod: &Pod,
) -> Result<(), Error> {
    credentials::provide(context, pod, || {
        let authority = credentials::authority(context, "cdi-uploadserver-client-signer")?;
        let client = plan::client_name(&claim.metadata, origin);
        let lifetime = upload::lifetimes(context).client.lifetime;
        let made = authority.client(&client, lifetime, SystemTime::now());
        let made = made.map_err(Error::Certificates)?;
        Ok(plan::secret(pod, &made.certificate, &made.key, &context.settings.installation))
    })
    .await
}
