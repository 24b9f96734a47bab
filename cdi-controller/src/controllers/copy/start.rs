//! The pod that reads the source of a copy: what it waits for, and its creation.

use super::*;

pub(super) async fn begin(
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
    let authority = if plan::is_beside(&claim.metadata) {
        None
    } else {
        Some(credentials::bundle(context, "cdi-uploadserver-signer-bundle")?)
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

fn fits(
    context: &Context,
    source: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
) -> Result<(), plan::Mismatch> {
    let room = facts::room(context, source).zip(facts::room(context, claim));
    plan::check(source, claim, room)
}
