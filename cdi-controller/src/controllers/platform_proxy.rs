//! The proxies that the platform is configured with, and the authority of them: importers trust a copy of it in the
//! installation's namespace. The copy always has the same name: it is the one ConfigMap there that the controller may change.

use std::sync::Arc;
use std::time::Duration;

use api::annotations::state;
use api::events;
use api::names::PLATFORM_CA_CONFIG_MAP;
use api::v1beta1::{CdiConfigSpec, ImportProxy};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::workers::record;
use crate::engine::{Engine, Error};
use controller_core::components::CONFIG as COMPONENT;
use controller_core::event::Event;
use controller_core::meta;
use controller_core::openshift::{PROXY, Proxy};
use controller_core::plan::{Plan, Write};

/// Where the platform keeps authorities, and under which key.
const PLATFORM_NAMESPACE: &str = "openshift-config";
const PLATFORM_KEY: &str = "ca-bundle.crt";
/// The key of the copy.
const KEY: &str = "ca.crt";
/// Nobody tells when the authority changes.
pub const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// What the platform is configured with, unless somebody has set other proxies.
pub fn in_force(engine: &Engine, spec: &CdiConfigSpec) -> Option<Arc<Proxy>> {
    engine.api.caches.proxies.get("", PROXY).filter(|_| spec.import_proxy.is_none())
}

/// The proxies of the platform, where nobody has set others and the platform has any. `before`: the ConfigMap that was named
/// last as the one with their authority.
///
/// # Errors
/// [`Error::Api`].
pub async fn reconcile(
    engine: &Engine,
    spec: &CdiConfigSpec,
    before: Option<&str>,
) -> Result<Option<ImportProxy>, Error> {
    let proxy = in_force(engine, spec);
    let mut authority = None;
    if let Some(proxy) = &proxy
        && let Some(name) = proxy.authority()
    {
        match copy(engine, name).await? {
            Ok(()) => authority = Some(PLATFORM_CA_CONFIG_MAP.to_owned()),
            Err(event) => record(engine, COMPONENT, proxy.as_ref(), [event]).await?,
        }
    }
    if let Some(before) =
        before.filter(|name| !name.is_empty() && authority.as_deref() != Some(name))
    {
        remove(engine, before).await?;
    }
    Ok(proxy.map(|proxy| ImportProxy {
        http_proxy: proxy.status.http_proxy.clone(),
        https_proxy: proxy.status.https_proxy.clone(),
        no_proxy: proxy.status.no_proxy.clone(),
        trusted_ca_proxy: authority,
    }))
}

/// Brings the copy of an authority up to date, or says why there is none.
async fn copy(engine: &Engine, name: &str) -> Result<Result<(), Event>, Error> {
    let cluster = &engine.api;
    let namespace = &engine.settings.installation.namespace;
    let missing = |words: String| Ok(Err(Event::warning(events::RESOURCE_DOES_NOT_EXIST, words)));
    let source = cluster.get::<ConfigMap>(PLATFORM_NAMESPACE, name).await?;
    let Some(pem) = source.and_then(|map| map.data?.remove(PLATFORM_KEY)) else {
        return missing(format!(
            "there is no ConfigMap {PLATFORM_NAMESPACE}/{name} with the authority of the proxy under {PLATFORM_KEY}"
        ));
    };
    let wanted = ConfigMap {
        metadata: ObjectMeta {
            name: Some(PLATFORM_CA_CONFIG_MAP.to_owned()),
            namespace: Some(namespace.clone()),
            labels: Some(engine.settings.installation.labels()),
            annotations: Some([(state::COPY_OF.to_owned(), source_of(name))].into()),
            owner_references: engine.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), pem)].into()),
        ..ConfigMap::default()
    };
    let write = match cluster.get::<ConfigMap>(namespace, PLATFORM_CA_CONFIG_MAP).await? {
        None => Some(Write::create(wanted)),
        Some(present) if !is_copy(&present) => {
            return missing(format!(
                "the authority of the proxy cannot be copied to {namespace}/{PLATFORM_CA_CONFIG_MAP}: there is another ConfigMap of this name"
            ));
        }
        Some(present)
            if present.data == wanted.data
                && copied_from(&present) == Some(source_of(name).as_str()) =>
        {
            None
        }
        Some(mut present) => {
            present.data = wanted.data;
            let annotations = present.metadata.annotations.get_or_insert_default();
            annotations.insert(state::COPY_OF.to_owned(), source_of(name));
            Some(Write::replace(present))
        }
    };
    engine.execute_and_report(Plan::writes(write)).await?;
    Ok(Ok(()))
}

/// Removes a copy that is wanted no more. What somebody else made of this name stays. So does a copy of an earlier version,
/// which had the name of its source: ConfigMaps of other names may not be deleted, and nothing uses it.
async fn remove(engine: &Engine, name: &str) -> Result<(), Error> {
    let namespace = &engine.settings.installation.namespace;
    let present = match engine.api.get::<ConfigMap>(namespace, name).await? {
        Some(present) if is_copy(&present) => present,
        _ => return Ok(()),
    };
    if name == PLATFORM_CA_CONFIG_MAP {
        return engine.execute_and_report(Plan::writes(Write::delete(&present))).await.map(drop);
    }
    tracing::info!(
        "the ConfigMap {namespace}/{name}, a copy that an earlier version made, is unused: delete it"
    );
    Ok(())
}

fn is_copy(map: &ConfigMap) -> bool {
    let prefix = source_of("");
    copied_from(map).is_some_and(|source| source.starts_with(&prefix))
}

fn copied_from(map: &ConfigMap) -> Option<&str> {
    meta::annotation(&map.metadata, state::COPY_OF)
}

fn source_of(name: &str) -> String {
    format!("{PLATFORM_NAMESPACE}/{name}")
}
