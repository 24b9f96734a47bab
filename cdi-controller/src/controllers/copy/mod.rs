//! Claims that pods copy to: the pod that reads the source, once the server beside the target is there.

mod follow;
mod start;

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
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, rights};
use controller_core::bound;
use controller_core::clone::{self, Origin, OriginKind};
use controller_core::components::HOST_COPY as COMPONENT;
use controller_core::copy::{self as plan, Stage};
use controller_core::event::Event;
use controller_core::meta::{self, Changes, Pairs};
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::{OnRefused, PvcNote, RefusalReport};

use follow::{end, follow};
use start::begin;

/// How soon to look again at a pod that waits for both volumes.
const LOOK: Duration = Duration::from_secs(15);

/// Brings one copy one step on.
pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    if let Some(next) = restored::mind(&engine, &key).await? {
        return Ok(next);
    }
    let Some(claim) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let Some(source) = Origin::requested(&claim.metadata) else { return Ok(Requeue::OnChange) };
    let name = plan::pod_name(&claim.metadata);
    let pod = engine.api.caches.pods.get(&source.namespace, &name);
    match plan::stage(&claim) {
        Stage::Over => end(&engine, claim, &source, pod.as_deref()).await,
        Stage::Waiting if pod.is_none() => Ok(Requeue::OnChange),
        Stage::Waiting | Stage::Ready => match pod {
            // The one with both volumes was given up, and is on its way out.
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Requeue::After(POLL)),
            // It was noted that this one is given up, and nothing more.
            Some(pod) if plan::has_both(&pod) && !plan::is_beside(&claim.metadata) => {
                let plan = Plan::writes(Write::delete(pod.as_ref()));
                engine.execute_and_report(plan).await?;
                Ok(Requeue::After(POLL))
            }
            Some(pod) => follow(&engine, claim, &source, &pod).await,
            None => begin(&engine, claim, &source).await,
        },
    }
}

/// The target of the clone that a temporary PVC belongs to, which users see.
fn seen_by_users(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let (namespace, name) = clone::owner(&claim.metadata)?;
    let target = engine.api.caches.claims.get(namespace, name)?;
    let uid = clone::owner_uid(&claim.metadata)?;
    (meta::uid(&target.metadata) == uid).then_some(target)
}

/// Records events about the PVC that users see.
async fn tell(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    events: Vec<Event>,
) -> Result<(), Error> {
    let target = seen_by_users(engine, claim);
    workers::record(engine, COMPONENT, target.as_deref().unwrap_or(claim), events).await
}

/// What the pod proves itself with. The name is worked out, and never read from the claim: its owner may write there, and
/// would be given the name of the upload proxy, which every server believes.
async fn provide_secret(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    origin: &Origin,
    pod: &Pod,
) -> Result<(), Error> {
    credentials::provide(engine, pod, || {
        let authority = credentials::authority(engine, "cdi-uploadserver-client-signer")?;
        let client = plan::client_name(&claim.metadata, origin);
        let lifetime = upload::lifetimes(engine).client.lifetime;
        let made = authority.client(&client, lifetime, SystemTime::now());
        let made = made.map_err(Error::Certificates)?;
        Ok(plan::secret(pod, &made.certificate, &made.key, &engine.settings.installation))
    })
    .await
}
