//! The importer pod of a PVC, and what it needs from the cluster.

use std::collections::BTreeMap;

use api::annotations::{import, request};
use api::names;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use runtime::MetricsKey;

use crate::engine::{Engine, Error};
use controller_core::claim_kind::prime_target;
use controller_core::{meta, worker};

/// Key of a ConfigMap of VMware's options.
const VDDK_NODE_SELECTOR: &str = "vddk-node-selector";

pub(super) async fn importer_pod(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
) -> Result<Pod, Error> {
    let caches = &engine.api.caches;
    let target = prime_target(&claim.metadata)
        .and_then(|target| caches.claims.get(&target.namespace, &target.name));
    let config = engine.config_with_credentials();
    let classes = engine.classes();
    let placement = engine.placement();
    let is_vddk = meta::annotation(&claim.metadata, import::SOURCE) == Some("vddk");
    let (vddk_image, selector) =
        if is_vddk { vddk(engine, claim, target.as_deref()).await? } else { (None, None) };
    let key = MetricsKey::random()
        .map_err(|source| Error::Local { action: "create a key for a worker".into(), source })?;
    worker::pod(&worker::Facts {
        claim,
        target: target.as_deref().unwrap_or(claim),
        config: config.as_deref(),
        classes: &classes,
        placement: placement.as_ref(),
        image: &engine.settings.image,
        vddk_image: vddk_image.as_deref(),
        vddk_node_selector: selector.as_ref(),
        installation: &engine.settings.installation,
        metrics_key: Some(&key.to_text()),
    })
    .map_err(Error::Worker)
}

/// The image with VMware's library, and the node selector of its workers.
async fn vddk(
    engine: &Engine,
    claim: &PersistentVolumeClaim,
    target: Option<&PersistentVolumeClaim>,
) -> Result<(Option<String>, Option<BTreeMap<String, String>>), Error> {
    let annotated = |claim: &PersistentVolumeClaim| {
        let image = meta::annotation(&claim.metadata, request::VDDK_INIT_IMAGE);
        image.filter(|image| !image.is_empty()).map(str::to_owned)
    };
    // A user who reads that the annotation is missing may add it to the target.
    let image = match annotated(claim).or_else(|| target.and_then(annotated)) {
        Some(image) => Some(image),
        None => {
            let namespace = &engine.settings.installation.namespace;
            let map = engine.api.get::<ConfigMap>(namespace, names::VDDK_CONFIG_MAP).await?;
            map.and_then(|map| map.data?.remove(names::VDDK_CONFIG_MAP_KEY))
        }
    };
    let arguments = meta::annotation(&claim.metadata, request::VDDK_EXTRA_ARGS);
    let selector = match arguments.filter(|name| !name.is_empty()) {
        Some(name) => {
            let namespace = meta::namespace(&claim.metadata);
            let map = engine.api.get::<ConfigMap>(namespace, name).await?;
            let text = map.and_then(|map| map.data?.remove(VDDK_NODE_SELECTOR));
            text.and_then(|text| serde_json::from_str(&text).ok())
        }
        None => None,
    };
    Ok((image, selector))
}
