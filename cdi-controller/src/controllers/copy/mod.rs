//! PVCs that pods copy to: the pod that reads the source, once the upload server of the target is ready.

mod start;

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::{POLL, credentials, restored, upload};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::clone::{self, Origin};
use controller_core::copy::{self as plan, CopyState};
use controller_core::meta;
use controller_core::plan::{Plan, Requeue};
use controller_core::upload as server;
use controller_core::worker;

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    if let Some(next) = restored::clean_up(&engine, &key).await? {
        return Ok(next);
    }
    let Some(claim) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let Some(source) = Origin::requested(&claim.metadata) else { return Ok(Requeue::OnChange) };
    let plan = plan_copy(&engine, &claim, &source).await?;
    engine.execute_and_report(plan).await
}

async fn plan_copy(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    source: &Origin,
) -> Result<Plan, Error> {
    let name = plan::pod_name(&claim.metadata);
    let pod = engine.api.caches.pods.get(&source.namespace, &name);
    let Some(pod) = pod else {
        return match plan::copy_state(claim) {
            CopyState::Over => Ok(plan::plan_end(claim, source, None)),
            CopyState::Waiting => Ok(Plan::default()),
            CopyState::Ready => start::plan_start(engine, claim, source).await,
            CopyState::Read => Ok(plan_after_read(engine, claim, None)),
        };
    };
    let uses_one_pod = plan::uses_one_pod(&claim.metadata);
    match plan::copy_state(claim) {
        CopyState::Over => return Ok(plan::plan_end(claim, source, Some(&pod))),
        CopyState::Read => return Ok(plan_after_read(engine, claim, Some(&pod))),
        CopyState::Ready | CopyState::Waiting => {}
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Plan::requeue(Requeue::After(POLL))); // another one replaces it
    }
    if plan::has_both(&pod) && !uses_one_pod {
        return Ok(plan::plan_replacement(&pod));
    }
    if meta::pod_phase(&pod).is_waiting() && !uses_one_pod {
        provide_secret(engine, claim, source, &pod).await?;
    }
    Ok(plan::plan_report(claim, &pod, engine.now()))
}

fn plan_after_read(engine: &Engine, claim: &PersistentVolumeClaim, reader: Option<&Pod>) -> Plan {
    let namespace = meta::namespace(&claim.metadata);
    let server = engine.api.caches.pods.get(namespace, &server::pod_name(claim));
    let server = server.filter(|server| worker::works_for(server, claim));
    plan::plan_after_read(claim, reader, server.as_deref(), engine.now())
}

/// The target of the clone that an intermediate PVC belongs to, which users see.
fn clone_target(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Option<Arc<PersistentVolumeClaim>> {
    let (namespace, name) = clone::owner(&claim.metadata)?;
    let target = engine.api.caches.claims.get(namespace, name)?;
    let uid = clone::owner_uid(&claim.metadata)?;
    (meta::uid(&target.metadata) == uid).then_some(target)
}

/// The client certificate of the pod. Its name is computed, never read from the PVC: the owner of that may write there, and
/// would get the name of the upload proxy, which every upload server accepts.
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
        let issued = authority.client(&client, lifetime, SystemTime::now());
        let issued = issued.map_err(Error::Certificates)?;
        Ok(plan::secret(pod, &issued.certificate, &issued.key, &engine.settings.installation))
    })
    .await
}
