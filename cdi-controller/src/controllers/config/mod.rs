//! The settings of the whole cluster: one CDIConfig, and its status.

mod endpoint;
mod platform_proxy;

use std::sync::Arc;
use std::time::Duration;

use api::v1beta1::{CdiConfig, CdiConfigSpec, CdiConfigStatus, ImportProxy};
use api::{labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::engine::queue::Key;
use crate::engine::{Engine, Error};
use controller_core::components::CONFIG as COMPONENT;
use controller_core::config::{self as plan, ProxyEndpoint};
use controller_core::plan::{Plan, Requeue, Write};

use endpoint::find_endpoint;
use platform_proxy::{AUTHORITY_POLL, platform_proxy, provide_platform_proxy};

/// When to retry if the cache does not have the lists yet.
const SOON: Duration = Duration::from_secs(5);

pub async fn reconcile(engine: Arc<Engine>, _key: Key) -> Result<Requeue, Error> {
    let installations = engine.api.caches.installations.list();
    let active = plan::active(&installations).map_err(Error::Installation)?;
    let present = match engine.config() {
        Some(config) => config,
        None => return create_config(&engine).await,
    };
    let mut wanted = present.as_ref().clone();
    wanted.spec = plan::authoritative(active, &present);
    let annotations = plan::annotations(&present, &wanted.spec);
    if !annotations.is_empty() {
        wanted.metadata.annotations = Some(annotations.applied_to(&present.metadata));
    }
    // A failure does not prevent the rest of the status from being written.
    let (endpoint, failure) = match find_endpoint(&engine).await {
        Ok(endpoint) => (endpoint, None),
        Err(error) => (ProxyEndpoint::NotKnownYet, Some(error)),
    };
    let classes = engine.classes();
    let nothing = CdiConfigStatus::default();
    let status = present.status.as_ref().unwrap_or(&nothing);
    let reported = status.import_proxy.clone();
    let (proxy, failure) = match proxies(&engine, &wanted.spec, reported.as_ref()).await {
        Ok(proxy) => (proxy, failure),
        Err(error) => (reported, Some(failure.unwrap_or(error))),
    };
    wanted.status = Some(plan::status(
        &plan::Facts {
            spec: &wanted.spec,
            present: status,
            classes: &classes,
            endpoint: &endpoint,
            platform_proxy: proxy.as_ref(),
        },
        engine.now(),
    ));
    let is_changed = (&wanted.spec, &wanted.status) != (&present.spec, &present.status);
    let is_changed = is_changed || !annotations.is_empty();
    let mut executed = Plan::writes(is_changed.then(|| Write::replace(wanted.clone())));
    let warnings = [
        plan::unmet(&wanted.spec),
        plan::visible_credentials(&wanted.spec),
        plan::ignored(&wanted),
        plan::ignored_gates(&wanted.spec),
    ];
    let warnings = warnings.into_iter().flatten();
    executed.record(COMPONENT, present.as_ref(), warnings);
    if let Some(installation) = active {
        executed.record(
            COMPONENT,
            installation,
            plan::ignored_installation(installation, &present),
        );
    }
    engine.execute_and_report(executed).await?;
    match (failure, endpoint) {
        (Some(error), _) => Err(error),
        (None, ProxyEndpoint::NotKnownYet) => Ok(Requeue::After(SOON)),
        (None, ProxyEndpoint::Closed | ProxyEndpoint::Open(_)) => {
            Ok(requeue_of(&engine, &wanted.spec))
        }
    }
}

async fn create_config(engine: &Engine) -> Result<Requeue, Error> {
    let plan = Plan {
        requeue: Requeue::Now,
        requeue_if_exists: Some(Requeue::OnChange), // the watch reports it
        ..Plan::writes([Write::create(new_config(engine))])
    };
    engine.execute_and_report(plan).await
}

/// Objects in other namespaces are not watched.
fn requeue_of(engine: &Engine, spec: &CdiConfigSpec) -> Requeue {
    let proxy = platform_proxy(engine, spec);
    if proxy.is_some_and(|proxy| proxy.authority().is_some()) {
        Requeue::After(AUTHORITY_POLL)
    } else if engine.api.caches.proxies.is_settled() {
        Requeue::OnChange
    } else {
        Requeue::After(SOON)
    }
}

/// The proxies of the platform; those of the present status until the list of proxies is complete.
async fn proxies(
    engine: &Engine,
    spec: &CdiConfigSpec,
    reported: Option<&ImportProxy>,
) -> Result<Option<ImportProxy>, Error> {
    if !engine.api.caches.proxies.is_settled() {
        return Ok(reported.cloned());
    }
    let authority = reported.and_then(|proxy| proxy.trusted_ca_proxy.as_deref());
    provide_platform_proxy(engine, spec, authority).await
}

/// The settings of an installation without any: PVCs wait for their first consumer.
fn new_config(engine: &Engine) -> CdiConfig {
    let mut all_labels = engine.settings.installation.labels();
    all_labels.insert(labels::COMPONENT.into(), String::new());
    CdiConfig {
        metadata: ObjectMeta {
            name: Some(names::CDI_CONFIG.into()),
            labels: Some(all_labels),
            annotations: Some(plan::annotations_of_new(&plan::default_spec())),
            owner_references: engine.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: plan::default_spec(),
        status: None,
    }
}
