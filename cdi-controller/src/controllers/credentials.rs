//! What the two pods of an upload or a copy prove themselves with: certificates of our own authorities, in secrets.

use std::path::Path;

use auth::{CertificateAuthority, Identity};
use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::engine::{Engine, Error};
use controller_core::meta;
use controller_core::plan::{Plan, Requeue, Write};

/// Bytes in the random part of a Secret's name, two digits each.
const SUFFIX_BYTES: usize = 8;

/// The random part of the name of the Secret that a new pod mounts. No Secret of an earlier pod has that name, so nothing is
/// ever in the way that would have to be read or deleted: the controller may create Secrets in the namespaces of users, and
/// nothing else.
///
/// # Errors
/// When the kernel has no random numbers.
pub fn random_suffix() -> Result<String, Error> {
    let bytes = runtime::random_bytes::<SUFFIX_BYTES>().map_err(|source| Error::Local {
        action: "choose a name for a worker's Secret".into(),
        source,
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates the Secret that `pod` mounts, once for each pod: the kubelet starts the pod when the Secret exists. The pod owns the
/// Secret, so the garbage collector deletes both.
///
/// If a Secret of that name exists, this process created it before it was restarted, or it belonged to a pod of the same name,
/// made by a version that did not choose names at random, and is about to be collected. So the pod is not noted as served, and
/// the next look tries again.
pub async fn provide(
    engine: &Engine,
    pod: &Pod,
    make: impl FnOnce() -> Result<Secret, Error>,
) -> Result<(), Error> {
    let uid = meta::uid(&pod.metadata);
    if engine.configured_pods.contains(uid) {
        return Ok(());
    }
    let plan = Plan {
        writes: vec![Write::create(make()?)],
        requeue_if_exists: Some(Requeue::Now),
        ..Plan::default()
    };
    if engine.execute_and_report(plan).await? == Requeue::OnChange {
        engine.configured_pods.insert(uid);
    }
    Ok(())
}

/// The authority that signs with the secret of this name.
pub fn authority(engine: &Engine, name: &str) -> Result<CertificateAuthority, Error> {
    let folder = engine.settings.certificates.join("certs").join(name);
    let signer = Identity {
        certificate: read(&folder.join("tls.crt"))?,
        key: read(&folder.join("tls.key"))?,
    };
    CertificateAuthority::from_identity(&signer).map_err(Error::Certificates)
}

/// Those who are trusted, from the map of this name.
pub fn bundle(engine: &Engine, name: &str) -> Result<String, Error> {
    read(&engine.settings.certificates.join("ca-bundle").join(name).join("ca-bundle.crt"))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::Local {
        action: format!("read {}, by which uploads and copies are vouched for", path.display()),
        source,
    })
}
