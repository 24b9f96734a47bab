//! Carrying out what a plan says, in its order: what it deletes last, nothing stands for any more by then.

use api::events;
use api::v1beta1::DataImportCron;
use serde_json::json;

use super::super::data_source::members;
use super::COMPONENT;
use crate::engine::api_client::{Kind, Made, metadata_patch};
use crate::engine::cache::Store;
use crate::engine::{Context, Error, image_proof};
use controller_core::data_import_cron::{self as crons, Change};
use controller_core::event::Event;
use controller_core::meta;

/// Makes all changes, or as many as there is no trouble with.
pub async fn changes(
    context: &Context,
    cron: &DataImportCron,
    changes: &[Change],
) -> Result<(), Error> {
    for change in changes {
        let done = self::change(context, meta::namespace(&cron.metadata), change).await;
        if let Err(error) = &done
            && let (Change::CreateVolume(_), Some(status)) = (change, error.refusal())
            && error.is_final()
        {
            // Nobody else would say why there is no import.
            let message = format!("Unable to create DataVolume: {}", status.message);
            let event = Event::warning(events::CLAIM_NOT_VALID, message);
            context.recorder.tell(COMPONENT, cron, &[event]).await;
        }
        done?;
    }
    Ok(())
}

/// Makes one change. What is gone meanwhile needs none; the next look sees that.
pub async fn change(context: &Context, namespace: &str, change: &Change) -> Result<(), Error> {
    let cluster = &context.cluster;
    let stores = &cluster.stores;
    match change {
        Change::CreateVolume(volume) => cluster.create(volume.as_ref()).await.map(|_| ()),
        Change::CreateSnapshot { snapshot, image } => {
            let name = meta::name(&snapshot.metadata);
            match (cluster.create(snapshot.as_ref()).await?, stores.claims.get(namespace, name)) {
                // Of a snapshot that somebody else has taken nobody knows when.
                (Made::New(made), Some(claim)) => {
                    image_proof::prove_snapshot(context, &made, &claim, image).await
                }
                _ => Ok(()),
            }
        }
        Change::Prove { claim, image } => match stores.claims.get(namespace, claim) {
            Some(claim) => image_proof::prove_claim(context, &claim, image).await,
            None => Ok(()),
        },
        Change::CreateSource(source) => cluster.create(source.as_ref()).await.map(|_| ()),
        Change::ChangeSource { name, source, labels } => {
            let Some(present) = stores.data_sources.get(namespace, name) else { return Ok(()) };
            let mut patch = json!({});
            if !labels.is_empty() {
                patch["metadata"] = json!({ "labels": labels });
            }
            if let Some(source) = source {
                patch["spec"] = json!({ "source": members(source) });
            }
            cluster.patch(present.as_ref(), &patch).await.map(|_| ())
        }
        Change::Mark { kind, name, labels, annotations } => {
            let Some(patch) = metadata_patch(labels, annotations) else { return Ok(()) };
            match kind {
                crons::Kind::Volume => {
                    mark(context, &stores.volumes, namespace, name, &patch).await
                }
                crons::Kind::Claim => mark(context, &stores.claims, namespace, name, &patch).await,
                crons::Kind::Snapshot => {
                    mark(context, &stores.snapshots, namespace, name, &patch).await
                }
                crons::Kind::Source => {
                    mark(context, &stores.data_sources, namespace, name, &patch).await
                }
            }
        }
        Change::Delete(kind, name) => match kind {
            crons::Kind::Volume => delete(context, &stores.volumes, namespace, name).await,
            crons::Kind::Claim => delete(context, &stores.claims, namespace, name).await,
            crons::Kind::Snapshot => delete(context, &stores.snapshots, namespace, name).await,
            crons::Kind::Source => delete(context, &stores.data_sources, namespace, name).await,
        },
    }
}

async fn mark<K: Kind>(
    context: &Context,
    store: &Store<K>,
    namespace: &str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<(), Error> {
    match store.get(namespace, name) {
        Some(object) => context.cluster.patch(object.as_ref(), patch).await.map(|_| ()),
        None => Ok(()),
    }
}

async fn delete<K: Kind>(
    context: &Context,
    store: &Store<K>,
    namespace: &str,
    name: &str,
) -> Result<(), Error> {
    match store.get(namespace, name) {
        Some(object) => context.cluster.delete(object.as_ref()).await,
        None => Ok(()),
    }
}
