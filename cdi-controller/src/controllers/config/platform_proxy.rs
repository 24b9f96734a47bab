//! The proxies that the platform is configured with, and their CA certificates.

use std::sync::Arc;
use std::time::Duration;

use api::names::PLATFORM_CA_CONFIG_MAP;
use api::v1beta1::{CdiConfigSpec, ImportProxy};
use k8s_openapi::api::core::v1::ConfigMap;

use crate::engine::{Engine, Error};
use controller_core::components::CONFIG;
use controller_core::config::platform_proxy::{self as plan, CopyFacts, OldCopy};
use controller_core::openshift::{PROXY, Proxy};
use controller_core::plan::Plan;

/// The controller does not watch the namespace of the CA certificates.
pub const AUTHORITY_POLL: Duration = Duration::from_secs(300);

/// The proxies of the platform, unless the settings name others.
pub fn platform_proxy(engine: &Engine, spec: &CdiConfigSpec) -> Option<Arc<Proxy>> {
    engine.api.caches.proxies.get("", PROXY).filter(|_| spec.import_proxy.is_none())
}

/// Copies the CA certificates of the platform's proxies, before the settings name the copy. `before`: the ConfigMap that they
/// name at the moment.
pub async fn provide_platform_proxy(
    engine: &Engine,
    spec: &CdiConfigSpec,
    before: Option<&str>,
) -> Result<Option<ImportProxy>, Error> {
    let proxy = platform_proxy(engine, spec);
    let mut plan = Plan::default();
    let mut authority = None;
    if let Some(proxy) = &proxy
        && let Some(name) = proxy.authority()
    {
        let namespace = &engine.settings.installation.namespace;
        let source = engine.api.get::<ConfigMap>(plan::PLATFORM_NAMESPACE, name).await?;
        let present = match &source {
            Some(_) => engine.api.get::<ConfigMap>(namespace, PLATFORM_CA_CONFIG_MAP).await?,
            None => None,
        };
        let copied = plan::plan_copy(CopyFacts {
            name,
            source: source.as_ref(),
            present: present.as_ref(),
            installation: &engine.settings.installation,
            owner: engine.owner(),
        });
        match copied {
            Ok(write) => {
                plan.writes.extend(write);
                authority = Some(PLATFORM_CA_CONFIG_MAP.to_owned());
            }
            Err(event) => plan.record(CONFIG, proxy.as_ref(), [event]),
        }
    }
    let old = before.filter(|name| !name.is_empty() && authority.as_deref() != Some(name));
    if let Some(name) = old {
        let namespace = &engine.settings.installation.namespace;
        let present = engine.api.get::<ConfigMap>(namespace, name).await?;
        match plan::plan_removal(name, present.as_ref()) {
            OldCopy::Delete(write) => plan.writes.extend(*write),
            OldCopy::Foreign => {}
            OldCopy::Unused => tracing::info!(
                "the ConfigMap {namespace}/{name}, a copy that an earlier version created, is unused: delete it"
            ),
        }
    }
    engine.execute_and_report(plan).await?;
    Ok(proxy.map(|proxy| ImportProxy {
        http_proxy: proxy.status.http_proxy.clone(),
        https_proxy: proxy.status.https_proxy.clone(),
        no_proxy: proxy.status.no_proxy.clone(),
        trusted_ca_proxy: authority,
    }))
}
