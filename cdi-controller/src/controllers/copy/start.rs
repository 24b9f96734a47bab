//! The pod that reads the source of a copy: what it waits for, and its creation.

use super::*;

pub(super) async fn begin(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
) -> Result<Requeue, Error> {
    // The server has all, and the pod that sent it is gone.
    if meta::worker_phase(&claim.metadata) == PodPhase::Succeeded {
        let mut changes = Changes::default();
        changes.set(&claim.metadata, state::CLONE_OF, "true");
        workers::note(engine, claim, &Pairs::new(), &changes).await?;
        return Ok(Requeue::OnChange);
    }
    // Of what the right is: the snapshot, where the claim was made of one.
    let copied = Origin::copied(&claim.metadata).unwrap_or_else(|| origin.clone());
    if rights::is_awaited(&copied, &claim.metadata) {
        return Ok(Requeue::OnChange);
    }
    if origin.namespace != meta::namespace(&claim.metadata) {
        rights::check_claim(engine, &copied, &claim.metadata)?;
    }
    let caches = &engine.api.caches;
    let source = caches.claims.get(&origin.namespace, &origin.name);
    if copied.kind == OriginKind::Snapshot {
        let source = source.as_deref();
        let may = source.map(|source| restored::may_be_read(engine, &claim, source, &copied));
        // Its DataVolume minds what is made of the snapshot, and tells.
        if !may.transpose()?.unwrap_or(false) {
            return Ok(Requeue::OnChange);
        }
    }
    let Some(source) = source else {
        let message = format!("The source {} doesn't exist", origin.named());
        let event = Event::warning(events::CLONE_WITHOUT_SOURCE, message);
        tell(engine, &claim, vec![event]).await?;
        return Ok(Requeue::OnChange);
    };
    if meta::claim_phase(&source) != ClaimPhase::Bound || !facts::is_filled(engine, &source) {
        let waits_for = format!("{} to be filled", origin.name);
        note_waiting(engine, claim, reason::PENDING, &waits_for).await?;
        return Ok(Requeue::After(POLL));
    }
    // Between the helper claims of a populator all has been looked at before.
    if clone::owner_uid(&claim.metadata).is_none()
        && let Err(mismatch) = fits(engine, &source, &claim)
    {
        tell(engine, &claim, vec![mismatch.event()]).await?;
        return Ok(Requeue::OnChange);
    }
    let pods = workers::pods_with(engine, &origin.namespace, &origin.name).await?;
    let writers = clone::writers(&pods, &origin.name);
    if !writers.is_empty() {
        let events = clone::events_of_writers(&origin.namespace, &writers, &origin.name);
        tell(engine, &claim, events).await?;
        let waits_for = clone::free_of(&origin.name, &writers);
        note_waiting(engine, claim, events::CLONE_SOURCE_IN_USE, &waits_for).await?;
        return Ok(Requeue::After(POLL));
    }
    let mut changes = Changes::default();
    let name = plan::pod_name(&claim.metadata);
    changes.set(&claim.metadata, state::CLONE_SOURCE_POD_NAME, name.as_str());
    let claim = workers::note(engine, claim, &Pairs::new(), &changes).await?;
    let held = Write::add_finalizer(claim.as_ref(), finalizer::CLONE_SOURCE);
    let claim = workers::write_one(engine, claim, held).await?;
    make(engine, claim, origin, &source).await
}

/// What the reader waits for is said where later stands how it gets on, so that the DataVolume says it.
async fn note_waiting(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    reason: &str,
    waits_for: &str,
) -> Result<(), Error> {
    let message = format!("Waits for {waits_for}");
    let changes = plan::not_running(&claim.metadata, reason, &message);
    workers::note(engine, claim, &Pairs::new(), &changes).await.map(|_| ())
}

async fn make(
    engine: &Engine,
    claim: Arc<PersistentVolumeClaim>,
    origin: &Origin,
    source: &PersistentVolumeClaim,
) -> Result<Requeue, Error> {
    let name = plan::pod_name(&claim.metadata);
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let authority = if plan::is_beside(&claim.metadata) {
        None
    } else {
        Some(credentials::bundle(engine, "cdi-uploadserver-signer-bundle")?)
    };
    let secret = plan::secret_name(&claim.metadata, &credentials::random_suffix()?);
    let config = engine.config();
    let placement = engine.placement();
    let pod = plan::pod(&plan::Facts {
        claim: &claim,
        source,
        authority: authority.as_deref(),
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &engine.settings.image,
        cloner: &engine.settings.cloner_image,
        metrics_key: &key.to_text(),
        secret: &secret,
        installation: &engine.settings.installation,
    });
    let seen = seen_by_users(engine, &claim);
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
    let applied = engine.execute(executed).await?;
    match applied.latest::<Pod>() {
        Some(_) if authority.is_none() => Ok(Requeue::After(LOOK)),
        Some(pod) => provide_secret(engine, &claim, origin, &pod).await.map(|()| Requeue::OnChange),
        None => Ok(Requeue::After(POLL)),
    }
}

fn fits(
    engine: &Engine,
    source: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
) -> Result<(), plan::Mismatch> {
    let room = facts::room(engine, source).zip(facts::room(engine, claim));
    plan::check(source, claim, room)
}
