//! Signs which image a PVC or VolumeSnapshot of a DataImportCron holds, for [`controller_core::data_import_cron::ProvenImage`].

use std::time::SystemTime;

use auth::token::{Claims, Resource};
use controller_core::data_import_cron::ProvenImage;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::engine::{Engine, chain, rights};

/// Signs a statement. `None` without a signing key: the object gets no proof, so it can be used, but is not reused.
pub fn sign(engine: &Engine, statement: &Claims) -> Option<String> {
    let signed = rights::sign(engine, statement);
    let warn = |error| {
        tracing::warn!(
            "cannot sign which image {}/{} holds, so it is not reused: {}",
            statement.namespace,
            statement.name,
            chain(&error)
        );
    };
    signed.map_err(warn).ok()
}

/// Whether a PVC has a valid proof that it holds an image.
pub fn is_proven(engine: &Engine, claim: &PersistentVolumeClaim, image: &ProvenImage) -> bool {
    rights::public_key(engine).is_ok_and(|key| {
        image.is_proven_by(&key, Resource::pvcs(), &claim.metadata, SystemTime::now())
    })
}
