//! Writes the CA bundle into the webhook configurations and the APIService, by which the cluster's API server verifies this
//! installation's servers.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::certificate_manager::bundle_text;
use crate::chains::API_BUNDLE;
use crate::error::Error;
use crate::manifests::{API_SERVICE, MUTATING, VALIDATING};

/// Writes the bundle where it is missing or outdated. Objects that are not installed are skipped. Returns whether all of
/// them are installed: `kubectl apply` creates the webhooks last, after this program has started.
pub(crate) async fn inject_ca_bundle(client: &Client, namespace: &str) -> Result<bool, Error> {
    let mut is_complete = true;
    let bundles: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let bundle = bundles.get_opt(API_BUNDLE).await;
    let bundle = bundle.map_err(Error::cluster(format!("read ConfigMap {API_BUNDLE}")))?;
    let bundle = ByteString(bundle_text(bundle.as_ref()).as_bytes().to_vec());
    let params = PatchParams::default();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for name in VALIDATING {
        let found =
            validating.get_opt(name).await.map_err(Error::cluster(format!("read {name}")))?;
        is_complete &= found.is_some();
        let hooks = found.and_then(|found| found.webhooks).unwrap_or_default();
        let hooks = hooks.into_iter().map(|hook| (hook.name, hook.client_config.ca_bundle));
        if let Some(patch) = webhook_patch(hooks, &bundle) {
            let patched = validating.patch(name, &params, &Patch::Strategic(patch)).await;
            patched.map_err(Error::cluster(format!("write {name}")))?;
        }
    }
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in MUTATING {
        let found = mutating.get_opt(name).await.map_err(Error::cluster(format!("read {name}")))?;
        is_complete &= found.is_some();
        let hooks = found.and_then(|found| found.webhooks).unwrap_or_default();
        let hooks = hooks.into_iter().map(|hook| (hook.name, hook.client_config.ca_bundle));
        if let Some(patch) = webhook_patch(hooks, &bundle) {
            let patched = mutating.patch(name, &params, &Patch::Strategic(patch)).await;
            patched.map_err(Error::cluster(format!("write {name}")))?;
        }
    }
    let services: Api<APIService> = Api::all(client.clone());
    let found = services.get_opt(API_SERVICE).await;
    let found = found.map_err(Error::cluster(format!("read {API_SERVICE}")))?;
    is_complete &= found.is_some();
    if found.is_some_and(|found| found.spec.and_then(|spec| spec.ca_bundle) != Some(bundle.clone()))
    {
        let patch = Patch::Merge(json!({ "spec": { "caBundle": bundle } }));
        let patched = services.patch(API_SERVICE, &params, &patch).await;
        patched.map_err(Error::cluster(format!("write {API_SERVICE}")))?;
    }
    Ok(is_complete)
}

/// A strategic merge patch for the webhooks with another bundle; its merge key is the webhook's name.
fn webhook_patch(
    present: impl Iterator<Item = (String, Option<ByteString>)>,
    bundle: &ByteString,
) -> Option<Value> {
    let old = present.filter(|(_, found)| found.as_ref() != Some(bundle));
    let new: Vec<_> = old
        .map(|(name, _)| json!({ "name": name, "clientConfig": { "caBundle": bundle } }))
        .collect();
    (!new.is_empty()).then(|| json!({ "webhooks": new }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_contains_only_outdated_webhooks() {
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let (old, new) = (bytes("old"), bytes("new"));
        let present = || {
            let hooks = [("a", Some(new.clone())), ("b", Some(old.clone())), ("c", None)];
            hooks.into_iter().map(|(name, bundle)| (name.to_owned(), bundle))
        };
        let expected = json!({ "webhooks": [
            { "name": "b", "clientConfig": { "caBundle": "bmV3" } },
            { "name": "c", "clientConfig": { "caBundle": "bmV3" } },
        ] });
        assert_eq!(webhook_patch(present(), &new), Some(expected));
        assert_eq!(webhook_patch(present().take(1), &new), None);
        assert_eq!(webhook_patch(std::iter::empty(), &new), None);
    }
}
