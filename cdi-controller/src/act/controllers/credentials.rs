//! What the two pods of an upload or a copy prove themselves with: certificates of our own authorities, in secrets.

use std::path::Path;

use auth::{Authority, Identity};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};

use super::super::cluster::Made;
use super::super::{Context, Error};
use crate::meta;

/// Gives the pod that works for a claim its secret, once for each pod: it waits until the secret is there. One of its name
/// may be left of the pod before it, and nobody here may look into secrets: only one that has the claim's UID in its name,
/// which is nobody else's, is replaced.
pub async fn provide(
    context: &Context,
    claim: &PersistentVolumeClaim,
    pod: &Pod,
    make: impl FnOnce() -> Result<Secret, Error>,
) -> Result<(), Error> {
    let uid = meta::uid(&pod.metadata);
    if context.served.contains(uid) {
        return Ok(());
    }
    let secret = make()?;
    if let Made::Present = context.cluster.create(&secret).await? {
        let (namespace, name) = (meta::namespace(&secret.metadata), meta::name(&secret.metadata));
        let claim_uid = meta::uid(&claim.metadata);
        if !claim_uid.is_empty() && name.starts_with(claim_uid) {
            context.cluster.delete_named::<Secret>(namespace, name).await?;
            context.cluster.create(&secret).await?;
        }
    }
    context.served.insert(uid);
    Ok(())
}

/// The authority that signs with the secret of this name.
pub fn authority(context: &Context, name: &str) -> Result<Authority, Error> {
    let folder = context.settings.certificates.join("certs").join(name);
    let signer = Identity {
        certificate: read(&folder.join("tls.crt"))?,
        key: read(&folder.join("tls.key"))?,
    };
    Authority::read(&signer).map_err(Error::Certificates)
}

/// Those who are trusted, from the map of this name.
pub fn bundle(context: &Context, name: &str) -> Result<String, Error> {
    read(&context.settings.certificates.join("ca-bundle").join(name).join("ca-bundle.crt"))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Local {
        action: format!("read {}, by which uploads and copies are vouched for", path.display()),
        source,
    })
}
