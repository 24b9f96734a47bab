//! The token keys of the cluster, created if they do not exist, and again if they are deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{labels, names};
use auth::token::{KeyTexts, SigningKey, VerifyingKey};
use futures_util::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};

use crate::api_client::ApiClient;
use crate::error::Error;

/// Between two attempts to create a deleted Secret again.
const RESTORE_INTERVAL: Duration = Duration::from_secs(5);

/// Values of the labels `app.kubernetes.io/part-of` and `…/version` on created objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    pub part_of: Option<String>,
    pub version: Option<String>,
}

/// The keys of the cluster's tokens.
pub struct Keys {
    pub signing: SigningKey,
    /// Verifies tokens of the controller. `None`: the Secret has no readable public key.
    pub verifying: Option<VerifyingKey>,
    /// Where they are stored.
    pub secret: Secret,
}

/// Reads the keys; creates them if there are none. Of several API servers that start at the same time, the first
/// creates the keys of all.
///
/// # Errors
/// When the API server cannot be reached or refuses, or the keys cannot be used.
pub async fn read_keys(cluster: &ApiClient, installation: &Installation) -> Result<Keys, Error> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), cluster.namespace());
    let name = names::SIGNING_KEY_SECRET;
    let read = || async {
        secrets.get_opt(name).await.map_err(Error::cluster(format!("read Secret {name}")))
    };
    if let Some(secret) = read().await? {
        return keys(secret);
    }
    let texts = tokio::task::spawn_blocking(KeyTexts::generate).await;
    let texts = texts
        .map_err(|_| Error::Key { secret: name, problem: "generating a key was interrupted" })??;
    let owner = cluster.installation().await?.and_then(|cdi| cdi.controller_owner_ref(&()));
    let secret = secret(&texts, cluster.namespace(), installation, owner);
    match secrets.create(&PostParams::default(), &secret).await {
        Ok(created) => {
            tracing::info!("created the token keys in Secret {}", created.name_any());
            keys(created)
        }
        Err(kube::Error::Api(status)) if status.code == 409 => match read().await? {
            Some(secret) => keys(secret),
            None => {
                Err(Error::Key { secret: name, problem: "another process created and deleted it" })
            }
        },
        Err(error) => Err(Error::cluster(format!("create Secret {name}"))(error)),
    }
}

fn keys(secret: Secret) -> Result<Keys, Error> {
    let data = secret.data.as_ref();
    let text = |name: &str| data.and_then(|data| data.get(name));
    let private = text(names::SIGNING_KEY_PRIVATE)
        .ok_or(Error::Key { secret: names::SIGNING_KEY_SECRET, problem: "it has no id_rsa" })?;
    let public = text(names::SIGNING_KEY_PUBLIC);
    let verifying = public.and_then(|public| VerifyingKey::from_pem(&public.0).ok());
    if verifying.is_none() {
        let secret = names::SIGNING_KEY_SECRET;
        tracing::warn!("Secret {secret} has no readable id_rsa.pub, so no golden image is reused");
    }
    Ok(Keys { signing: SigningKey::from_pem(&private.0)?, verifying, secret })
}

/// Creates the Secret again whenever it is deleted, as long as this is polled: with the same keys, which the other
/// programs still have.
pub async fn keep_secret(cluster: ApiClient, keys: Secret) {
    let api: Api<Secret> = Api::namespaced(cluster.client(), cluster.namespace());
    let name = names::SIGNING_KEY_SECRET;
    let mut changes = watcher::watch_object(api.clone(), name).default_backoff().boxed();
    let mut last_seen = keys;
    while let Some(change) = changes.next().await {
        match change {
            Ok(Some(secret)) => last_seen = secret,
            Ok(None) => {
                while let Err(error) = restore(&cluster, &api, &last_seen).await {
                    tracing::warn!("{}", runtime::chain(&error));
                    tokio::time::sleep(RESTORE_INTERVAL).await;
                }
            }
            Err(error) => tracing::warn!("cannot watch Secret {name}: {error}"),
        }
    }
}

async fn restore(cluster: &ApiClient, api: &Api<Secret>, deleted: &Secret) -> Result<(), Error> {
    let owner = cluster.installation().await?.and_then(|cdi| cdi.controller_owner_ref(&()));
    let name = names::SIGNING_KEY_SECRET;
    let Some(secret) = restored(deleted, owner) else {
        tracing::info!("Secret {name} was deleted with the installation");
        return Ok(());
    };
    match api.create(&PostParams::default(), &secret).await {
        Ok(_) => tracing::warn!("Secret {name} was deleted: created it again, with the same keys"),
        // Another process was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(Error::cluster(format!("create Secret {name} again"))(error)),
    }
    Ok(())
}

/// A deleted Secret as it is created again. `None`: it was deleted with its owner, the installation.
fn restored(deleted: &Secret, owner: Option<OwnerReference>) -> Option<Secret> {
    let was_owned = !deleted.owner_references().is_empty();
    if was_owned && owner.is_none() {
        return None;
    }
    let metadata = ObjectMeta {
        name: deleted.metadata.name.clone(),
        namespace: deleted.metadata.namespace.clone(),
        labels: deleted.metadata.labels.clone(),
        annotations: deleted.metadata.annotations.clone(),
        owner_references: owner.map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Some(Secret { metadata, ..deleted.clone() })
}

/// In upstream CDI's format.
fn secret(
    texts: &KeyTexts,
    namespace: &str,
    installation: &Installation,
    owner: Option<OwnerReference>,
) -> Secret {
    let mut labels = BTreeMap::from([
        (labels::COMPONENT.to_owned(), labels::component::KEYSTORE.to_owned()),
        (labels::APP.to_owned(), labels::APP_VALUE.to_owned()),
        (labels::MANAGED_BY.to_owned(), labels::component::APISERVER.to_owned()),
        (labels::APP_COMPONENT.to_owned(), "storage".to_owned()),
    ]);
    let Installation { part_of, version } = installation;
    for (key, value) in [(labels::PART_OF, part_of), (labels::VERSION, version)] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.clone());
        }
    }
    let texts =
        [(names::SIGNING_KEY_PRIVATE, &texts.private), (names::SIGNING_KEY_PUBLIC, &texts.public)];
    let data = texts.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Secret {
        metadata: ObjectMeta {
            name: Some(names::SIGNING_KEY_SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(data.into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_has_upstream_cdis_format_and_a_usable_key() {
        let texts = KeyTexts::generate().unwrap();
        let installation = Installation { part_of: Some("hco".into()), version: None };
        let secret = secret(&texts, "cdi", &installation, None);
        assert_eq!(secret.name_any(), "cdi-api-signing-key");
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
        let labels = secret.metadata.labels.clone().unwrap();
        assert_eq!(labels["cdi.kubevirt.io"], "keystore");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "cdi-apiserver");
        assert_eq!(labels["app.kubernetes.io/part-of"], "hco");
        assert!(!labels.contains_key("app.kubernetes.io/version"));
        assert_eq!(secret.data.as_ref().unwrap().len(), 2);
        assert!(keys(secret.clone()).unwrap().verifying.is_some());
        let mut private_only = secret.clone();
        private_only.data.as_mut().unwrap().remove(names::SIGNING_KEY_PUBLIC);
        assert!(keys(private_only).unwrap().verifying.is_none());
        assert!(keys(Secret::default()).is_err());
    }

    #[test]
    fn deleted_secret_is_created_again_unless_its_installation_is_deleted() {
        let texts = KeyTexts::generate().unwrap();
        let owner = OwnerReference { uid: "cdi".into(), ..OwnerReference::default() };
        let mut unowned = secret(&texts, "cdi", &Installation::default(), None);
        unowned.metadata.resource_version = Some("7".into());
        unowned.metadata.uid = Some("old".into());
        let owned = secret(&texts, "cdi", &Installation::default(), Some(owner.clone()));
        for (deleted, installation, owners) in [
            (&unowned, None, Some(0)),
            (&unowned, Some(owner.clone()), Some(1)),
            (&owned, Some(owner), Some(1)),
            (&owned, None, None),
        ] {
            let restored = restored(deleted, installation);
            assert_eq!(restored.as_ref().map(|secret| secret.owner_references().len()), owners);
            let Some(restored) = restored else { continue };
            assert_eq!((restored.uid(), restored.resource_version()), (None, None));
            assert_eq!(restored.data, deleted.data);
            assert_eq!(restored.labels(), deleted.labels());
        }
    }
}
