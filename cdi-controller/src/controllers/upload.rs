//! Claims that are uploaded to: a server, a service and a secret for each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use api::v1beta1::{CertConfig, CertSettings};
use auth::CertificateLifetimes;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::{POLL, credentials, import, workers};
use crate::engine::queue::Key;
use crate::engine::{Engine, Error, scrape};
use controller_core::claim_kind::is_upload_target;
use controller_core::components::UPLOAD as COMPONENT;
use controller_core::import::PodAction;
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};
use controller_core::refusal::OnRefused;
use controller_core::upload as plan;
use controller_core::{config, scratch, worker};

pub async fn reconcile(engine: Arc<Engine>, key: Key) -> Result<Requeue, Error> {
    let Some(claim) = engine.api.caches.claims.get(&key.namespace, &key.name) else {
        return Ok(Requeue::OnChange);
    };
    let pod = engine.api.caches.pods.get(&key.namespace, &plan::pod_name(&claim));
    if !is_upload_target(&claim.metadata) && pod.is_none() {
        return Ok(Requeue::OnChange);
    }
    match pod {
        // Of an earlier claim of this name, and about to be collected.
        Some(pod) if !worker::works_for(&pod, &claim) => Ok(Requeue::After(POLL)),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => Ok(Requeue::OnChange),
        Some(pod) => follow(&engine, &claim, &pod).await,
        None => start(&engine, &claim).await,
    }
}

/// The pod first: its Secret has it as owner, and is created once the pod is in the cache.
async fn start(engine: &Engine, claim: &PersistentVolumeClaim) -> Result<Requeue, Error> {
    let honors_waiting = config::honors_waiting(&engine.config_spec());
    let decide = |users: &[Pod]| plan::decide_start(claim, users, honors_waiting);
    let plan = match workers::admit(engine, COMPONENT, claim, decide).await? {
        ControlFlow::Continue(named) => plan_creation(engine, claim, named)?,
        ControlFlow::Break(plan) => plan,
    };
    engine.execute_and_report(plan).await
}

fn plan_creation(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    named: Option<Write>,
) -> Result<Plan, Error> {
    let config = engine.config();
    let classes = engine.classes();
    let placement = engine.placement();
    let installation = &engine.settings.installation;
    let secret = plan::secret_name(claim, &credentials::random_suffix()?);
    let pod = plan::pod(&plan::Facts {
        claim,
        config: config.as_deref(),
        classes: &classes,
        placement: placement.as_ref(),
        image: &engine.settings.image,
        upload_server: &engine.settings.upload_server_image,
        deadline: plan::deadline(engine.now(), lifetimes(engine).upload_deadline()),
        secret: &secret,
        installation,
    });
    let report = workers::refused_pod(engine, COMPONENT, claim, meta::name(&pod.metadata));
    let service = plan::service(claim, installation);
    Ok(Plan {
        writes: named.into_iter().chain([Write::create(service), Write::create(pod)]).collect(),
        requeue: Requeue::Now,
        requeue_if_exists: Some(Requeue::After(POLL)),
        on_refused: OnRefused::Report(Box::new(report)),
        ..Plan::default()
    })
}

async fn follow(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<Requeue, Error> {
    let report = plan::plan(claim, pod);
    let mut provided = Plan::default();
    if meta::pod_phase(pod).is_waiting() && report.pod == PodAction::Keep {
        provide_secret(engine, claim, pod).await?;
        if scratch::is_needed(claim) {
            provided = import::plan_scratch(engine, claim, pod);
        }
    }
    engine.execute_and_report(provided.then(plan::plan_report(claim, pod, report))).await
}

/// How much of the upload to a PVC is written, in percent. `None`: no upload is active, or it is not known.
pub async fn measure(engine: &Engine, claim: &PersistentVolumeClaim) -> Option<f64> {
    let namespace = meta::namespace(&claim.metadata);
    let pod = engine.api.caches.pods.get(namespace, &plan::pod_name(claim))?;
    if !worker::works_for(&pod, claim) {
        return None;
    }
    let authorities = credentials::bundle(engine, "cdi-uploadserver-signer-bundle").ok()?;
    scrape::uploaded(&pod, &authorities, plan::hosts(claim).pop()?).await
}

/// A certificate for the server.
async fn provide_secret(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
) -> Result<(), Error> {
    credentials::provide(engine, pod, || {
        let clients = credentials::bundle(engine, "cdi-uploadserver-client-signer-bundle")?;
        let authority = credentials::authority(engine, "cdi-uploadserver-signer")?;
        let lifetime = lifetimes(engine).server.lifetime;
        let made = authority.server(&plan::hosts(claim), lifetime, SystemTime::now());
        let made = made.map_err(Error::Certificates)?;
        let installation = &engine.settings.installation;
        Ok(plan::secret(pod, &made.certificate, &made.key, &clients, installation))
    })
    .await
}

/// For how long certificates are made.
pub fn lifetimes(engine: &Engine) -> CertificateLifetimes {
    let installations = engine.api.caches.installations.list();
    let active = config::active(&installations).ok().flatten();
    let CertConfig { ca, server, client } =
        active.and_then(|cdi| cdi.spec.cert_config.clone()).unwrap_or_default();
    let [ca, server, client] = [ca, server, client].map(|group| group.unwrap_or_default());
    fn setting(group: &CertSettings) -> (Option<&str>, Option<&str>) {
        (group.duration.as_deref(), group.renew_before.as_deref())
    }
    CertificateLifetimes::from_settings(setting(&ca), setting(&server), setting(&client))
}
