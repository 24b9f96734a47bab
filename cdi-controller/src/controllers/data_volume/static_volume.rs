//! The PVC of a DataVolume for which a PersistentVolume is reserved.

use super::*;

/// The PVC of a DataVolume that asks for a static volume. `None`: none is reserved for it, or its PVC has it already.
pub(super) async fn static_volume(
    engine: &Engine,
    seen: &mut Seen,
) -> Result<Option<Outcome>, Error> {
    if !meta::has_annotation(&seen.volume.metadata, request::CHECK_STATIC_VOLUME) {
        return Ok(None);
    }
    let Some(claim) = seen.claim.clone() else {
        return claim_static_volume(engine, seen).await;
    };
    match plan::static_volume(&seen.volume, &claim, seen.population) {
        StaticVolume::Ignore => Ok(None),
        StaticVolume::Wait => Ok(Some(Outcome::WaitsForStaticVolume)),
        StaticVolume::Populated(changes) => {
            seen.claim = Some(workers::note(engine, claim, &meta::Pairs::new(), &changes).await?);
            Ok(None)
        }
        StaticVolume::Unexpected { volume } => {
            engine.execute_and_report(Plan::writes(Write::delete(claim.as_ref()))).await?;
            Err(Error::UnexpectedVolume { volume })
        }
    }
}

/// Creates the PVC for volumes that are reserved for a DataVolume.
async fn claim_static_volume(engine: &Engine, seen: &mut Seen) -> Result<Option<Outcome>, Error> {
    let is_reserved =
        |volume: &PersistentVolume| plan::is_reserved_for(volume, &seen.volume.metadata);
    let mut volumes = engine.api.caches.persistent_volumes.filter(is_reserved);
    if volumes.is_empty() {
        // One that was reserved recently may not be in the cache. To overlook it would be to import over it.
        let all = engine.api.list::<PersistentVolume>("", "").await?;
        volumes = all.into_iter().filter(is_reserved).map(Arc::new).collect();
    }
    let Ok(claim) = render(engine, seen) else { return Ok(None) };
    if volumes.is_empty() {
        return Ok(None);
    }
    let claim = plan::claim_for(claim, volumes.iter().map(AsRef::as_ref));
    let applied = engine.execute(Plan::writes([Write::create(claim)])).await?;
    seen.claim = applied.latest().map(Arc::new);
    Ok(Some(Outcome::WaitsForStaticVolume))
}
