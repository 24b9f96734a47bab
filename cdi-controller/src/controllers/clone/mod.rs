//! Claims that refer to a VolumeCloneSource: filled by the storage or by pods, in the namespace of the source, and given the
//! volume when it is complete.

mod decide;
mod execute;
mod facts_of_step;
mod slots;

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
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, chain, rights, scrape};
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

use decide::{allow, decided, without_origin};
pub use execute::measure;
use execute::{apply, progress, write};
use facts_of_step::step;
use slots::{at_work, queue};

/// How soon a clone looks again whether it is its turn. Whoever is done tells nobody.
const TURN: Duration = Duration::from_secs(5);

/// Brings one clone one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(target) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        engine.pvc_warnings.forget(&key.namespace, &key.name);
        return Ok(Requeue::OnChange);
    };
    let is_leaving = target.metadata.deletion_timestamp.is_some();
    let is_bound = meta::claim_phase(&target) == ClaimPhase::Bound;
    let has_begun = plan::has_finalizer(&target.metadata);
    if !is_clone_target(&target) || !has_begun && (is_leaving || is_bound) {
        return Ok(Requeue::OnChange);
    }
    if is_leaving {
        return tidy::finish(&engine, target).await;
    }
    if is_bound {
        let helper = tidy::helper(&engine, &target);
        let target = workers::note_complaints(&engine, target).await?;
        let target = progress(&engine, target, Phase::Succeeded, "", helper.as_deref()).await?;
        return tidy::finish(&engine, target).await;
    }
    let outcome = advance(&engine, target).await;
    if let Err(error) = &outcome
        && error.is_of_clone()
        && let Some(target) = engine.api.caches.claims.get(&key.namespace, &key.name)
    {
        let changes = plan::stuck(&target.metadata, &chain(error));
        workers::note(&engine, target, &Pairs::new(), &changes).await?;
    }
    outcome
}

async fn advance(engine: &Engine, target: Arc<PersistentVolumeClaim>) -> Result<Requeue, Error> {
    // It tells when there is one, and until then this is a claim like any other.
    let Some(source) = facts::clone_source(engine, &target) else { return Ok(Requeue::OnChange) };
    if !facts::is_placed(engine, &target) {
        return Ok(Requeue::OnChange);
    }
    let namespace = meta::namespace(&source.metadata);
    let origin = Origin::referred_to(namespace, &source.spec.source)
        .ok_or_else(|| Error::NoOrigin { name: meta::name(&source.metadata).to_owned() })?;
    if rights::is_awaited(&origin, &target.metadata) {
        return Ok(Requeue::OnChange);
    }
    allow(engine, &origin, &target).map_err(|error| without_origin(error, &source))?;
    let Some(found) = facts::find(engine, &origin) else {
        let message = format!("The source {} doesn't exist", origin.named());
        let event = Event::warning(events::CLONE_WITHOUT_SOURCE, message);
        workers::record(engine, COMPONENT, target.as_ref(), [event]).await?;
        let waits_for = format!("the {origin}");
        progress(engine, target, Phase::Pending, &waits_for, None).await?;
        return Ok(Requeue::OnChange);
    };
    let Some((target, plan)) = decided(engine, target, &origin, &found).await? else {
        return Ok(Requeue::OnChange);
    };
    let names = Names::of(meta::uid(&target.metadata), &plan);
    let uid = meta::uid(&target.metadata).to_owned();
    let parts = Parts::of(engine, &origin.namespace, &uid, &names);
    let target = workers::hand_on(engine, COMPONENT, target, parts.claim()).await?;
    let limit = engine.settings.clones_max.filter(|_| !plan::has_begun(&parts.temporary()));
    let slot = limit.map(|most| {
        let class = meta::storage_class_name(&target).unwrap_or_default();
        let at_work = || at_work(engine, &target);
        engine.clone_slots.reserve(class, key_of(target.as_ref()), at_work, most).ok_or(most)
    });
    if let Some(Err(most)) = slot {
        return queue(engine, target, most).await;
    }
    let step = step(engine, &target, &source, &found, &plan, &parts).await?;
    apply(engine, Arc::clone(&target), &origin, &parts, step).await
}
