//! Signs which image a PVC or VolumeSnapshot of a DataImportCron holds, for [`controller_core::data_import_cron::ProvenImage`].

use std::time::SystemTime;

use api::annotations::import;
use auth::token::{Claims, Resource};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use crate::engine::api_client::Kind;
use crate::engine::{Context, Error, chain, rights};
use controller_core::data_import_cron::ProvenImage;
use controller_core::snapshot::VolumeSnapshot;

/// Signs that a PVC holds an image. The caller has to know that the controller has just imported it.
///
/// # Errors
/// [`Error::Api`]. Without a signing key the PVC gets no proof: it can be used, but is not reused.
pub async fn prove_claim(
    context: &Context,
    claim: &PersistentVolumeClaim,
    image: &ProvenImage,
) -> Result<(), Error> {
    note(context, claim, image.statement(Resource::claims(), &claim.metadata)).await
}

/// Signs that a VolumeSnapshot holds the image of the PVC that the controller has just taken it of, if that PVC has a valid
/// proof.
///
/// # Errors
/// As [`prove_claim`].
pub async fn prove_snapshot(
    context: &Context,
    snapshot: &VolumeSnapshot,
    claim: &PersistentVolumeClaim,
    image: &ProvenImage,
) -> Result<(), Error> {
    let Ok(key) = rights::public_key(context) else { return Ok(()) };
    if !image.is_proven_by(&key, Resource::claims(), &claim.metadata, SystemTime::now()) {
        return Ok(());
    }
    note(context, snapshot, image.statement(Resource::snapshots(), &snapshot.metadata)).await
}

async fn note<K: Kind>(context: &Context, object: &K, said: Option<Claims>) -> Result<(), Error> {
    let Some(said) = said else { return Ok(()) };
    let proof = match rights::sign(context, &said) {
        Ok(proof) => proof,
        Err(error) => {
            tracing::warn!(
                "cannot sign which image {}/{} holds, so it is not reused: {}",
                said.namespace,
                said.name,
                chain(&error)
            );
            return Ok(());
        }
    };
    let patch = json!({ "metadata": { "annotations": { import::GOLDEN_IMAGE_PROOF: proof } } });
    context.cluster.patch(object, &patch).await.map(|_| ())
}
