//! The pod that reads the source of a copy: what it waits for, and its creation.

use api::{ClaimPhase, PodPhase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use super::clone_target;
use crate::controllers::{clone_facts as facts, credentials, restored, workers};
use crate::engine::{Engine, Error, rights};
use controller_core::clone::{self, Origin, OriginKind};
use controller_core::copy::{self as plan, CopyTarget};
use controller_core::meta;
use controller_core::plan::Plan;

pub(super) async fn plan_start(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    origin: &Origin,
) -> Result<Plan, Error> {
    let clone_target = clone_target(engine, claim);
    let target = CopyTarget { claim, shown: clone_target.as_deref().unwrap_or(claim) };
    if meta::worker_phase(&claim.metadata) == PodPhase::Succeeded {
        return Ok(target.plan_received());
    }
    // The clone token names the snapshot, where the source was restored from one.
    let copied = Origin::copied(&claim.metadata).unwrap_or_else(|| origin.clone());
    if rights::is_awaited(&copied, &claim.metadata) {
        return Ok(Plan::default());
    }
    if origin.namespace != meta::namespace(&claim.metadata) {
        rights::check_claim(engine, &copied, &claim.metadata)?;
    }
    let source = engine.api.caches.claims.get(&origin.namespace, &origin.name);
    if copied.kind == OriginKind::Snapshot {
        let source = source.as_deref();
        let may = source.map(|source| restored::may_be_read(engine, claim, source, &copied));
        // The controller of its DataVolume watches the PVC that is restored, and wakes this queue.
        if !may.transpose()?.unwrap_or(false) {
            return Ok(Plan::default());
        }
    }
    let Some(source) = source else { return Ok(target.plan_without_source(origin)) };
    if meta::claim_phase(&source) != ClaimPhase::Bound || !facts::is_filled(engine, &source) {
        return Ok(target.plan_unfilled(origin));
    }
    // The clone populator has compared source and target before it created an intermediate PVC.
    if clone::owner_uid(&claim.metadata).is_none() {
        let sizes = facts::usable_size(engine, &source).zip(facts::usable_size(engine, claim));
        if let Err(mismatch) = plan::check(&source, claim, sizes) {
            return Ok(target.plan_mismatch(mismatch.event()));
        }
    }
    let pods = workers::pods_with(engine, &origin.namespace, &origin.name).await?;
    let writers = clone::writers(&pods, &origin.name);
    if !writers.is_empty() {
        return Ok(target.plan_in_use(origin, &writers));
    }
    Ok(target.plan_creation(reader_pod(engine, claim, &source)?))
}

fn reader_pod(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    source: &PersistentVolumeClaim,
) -> Result<Pod, Error> {
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "make a key for a worker".into(), source })?;
    let authority = if plan::uses_one_pod(&claim.metadata) {
        None
    } else {
        Some(credentials::bundle(engine, "cdi-uploadserver-signer-bundle")?)
    };
    let secret = plan::secret_name(&claim.metadata, &credentials::random_suffix()?);
    let config = engine.config();
    let placement = engine.placement();
    Ok(plan::pod(&plan::Facts {
        claim,
        source,
        authority: authority.as_deref(),
        config: config.as_deref(),
        placement: placement.as_ref(),
        image: &engine.settings.image,
        cloner: &engine.settings.cloner_image,
        metrics_key: &key.to_text(),
        secret: &secret,
        installation: &engine.settings.installation,
    }))
}
