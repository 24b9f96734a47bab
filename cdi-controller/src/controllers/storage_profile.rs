//! Storage classes: a profile for each.

use std::sync::Arc;

use api::labels;
use api::v1beta1::{StorageProfile, StorageProfileSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::engine::api_client::{Made, metadata_patch};
use crate::engine::queue::{Key, Next};
use crate::engine::{Context, Error};
use controller_core::meta::Pairs;
use controller_core::storage_profile::{self as plan, SnapshotClass};
use controller_core::volume::PersistentVolume;

/// Where nobody provisions volumes, those that are there say what claims may be.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Brings the profile of one class up to date.
pub async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let stores = &context.cluster.stores;
    if stores.classes.is_undecodable("", &key.name) || stores.profiles.is_undecodable("", &key.name)
    {
        return Ok(Next::Wait); // the class is there, so its profile stays as it is
    }
    let profile = stores.profiles.get("", &key.name);
    let class = stores.classes.get("", &key.name);
    let class = class.filter(|class| class.metadata.deletion_timestamp.is_none());
    let Some(class) = class else {
        if let Some(profile) = profile {
            context.cluster.delete(profile.as_ref()).await?;
        }
        return Ok(Next::Wait);
    };
    let profile = match profile {
        Some(profile) => profile,
        None => match context.cluster.create(&new(&context, &key.name)).await? {
            Made::New(profile) => Arc::new(profile),
            // The watch has not told of it yet. When it does, this comes again.
            Made::Present => return Ok(Next::Wait),
        },
    };
    let volumes: Vec<PersistentVolume> = if class.provisioner == NO_PROVISIONER {
        let of_class = |volume: &PersistentVolume| {
            let spec = volume.spec.as_ref();
            spec.and_then(|spec| spec.storage_class_name.as_deref()) == Some(key.name.as_str())
        };
        let all = stores.persistent_volumes.filter(of_class);
        all.iter().map(|volume| volume.as_ref().clone()).collect()
    } else {
        Vec::new()
    };
    let snapshots: Option<Vec<SnapshotClass>> = stores
        .snapshot_classes
        .is_ready()
        .then(|| stores.snapshot_classes.list().iter().map(|class| class.to_fact()).collect());
    let facts = plan::Facts {
        class: &class,
        profile: Some(&profile),
        snapshot_classes: snapshots.as_deref(),
        volumes: &volumes,
    };
    let plan = plan::plan(&facts, context.now()).map_err(Error::StorageProfile)?;
    if let Some(patch) = metadata_patch(&Pairs::new(), &plan.annotations) {
        context.cluster.patch(profile.as_ref(), &patch).await?;
    }
    if profile.status.as_ref() != Some(&plan.status) {
        let mut status = json!(plan.status);
        // What is no more has to be said: a merge leaves what is not.
        if plan.status.snapshot_class.is_none() {
            status["snapshotClass"] = json!(null);
        }
        context.cluster.patch_status(profile.as_ref(), status).await?;
    }
    Ok(Next::Wait)
}

fn new(context: &Context, name: &str) -> StorageProfile {
    let mut all_labels = context.settings.installation.labels();
    all_labels.insert(labels::COMPONENT.into(), String::new());
    StorageProfile {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(all_labels),
            owner_references: context.owner().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: StorageProfileSpec::default(),
        status: None,
    }
}
