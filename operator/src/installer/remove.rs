//! Carries out the removal of an installation.

use api::names::CONTROLLER_LEASE;
use jiff::Timestamp;
use serde_json::Value;

use crate::api_client::Propagation;
use crate::error::Error;
use crate::events::InstallationEvent;
use crate::installer::{Installer, PassOutcome};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::plan::completion::WriteVerb;
use crate::plan::lifecycle::FINALIZER;
use crate::plan::removal::{RemovalFacts, RemovalStep, WORKER_SELECTOR, removal_step};
use crate::plan::status::{Versions, set_status};

/// More steps than a removal has. The next pass goes on.
const STEPS_MAX: usize = 10;

impl Installer {
    pub(super) async fn remove(
        &mut self,
        installation: &Value,
        now: Timestamp,
    ) -> Result<PassOutcome, Error> {
        let namespace = self.environment.namespace.clone();
        let controller_id =
            ObjectId::new(&kinds::DEPLOYMENT, &namespace, api::labels::component::DEPLOYMENT);
        let mut installation = installation.clone();
        for _ in 0..STEPS_MAX {
            let controller = self.api.get(&controller_id).await?;
            let workers = self.list_workers().await?;
            let objects: Vec<_> = workers.iter().map(|(_, object)| object.clone()).collect();
            let step = removal_step(&RemovalFacts {
                installation: &installation,
                controller: controller.as_ref(),
                workers: &objects,
                now,
            });
            match step {
                RemovalStep::SetPhase(phase) => {
                    let mut changed = installation.clone();
                    set_status(&mut changed, Some(phase), &Versions::default(), None, now);
                    installation = self.write_installation(&installation, &changed).await?;
                }
                RemovalStep::DeleteController => {
                    let uid = controller.as_ref().map(metadata::uid).unwrap_or_default().to_owned();
                    let deleted = self.api.delete(&controller_id, &uid, Propagation::Foreground);
                    let deleted = deleted.await;
                    let message = format!("Deleted deployment {} successfully", controller_id.name);
                    self.record_deletion(&installation, &deleted, message, now).await;
                    deleted?;
                }
                RemovalStep::AwaitController => return Ok(PassOutcome::awaiting()),
                RemovalStep::DeleteWorkers(indexes) => {
                    let mut deleted = Ok(());
                    for index in indexes {
                        let (id, object) = &workers[index];
                        let uid = metadata::uid(object);
                        let one = self.api.delete(id, uid, Propagation::Background).await;
                        deleted = deleted.and(one);
                    }
                    let message = "Deleted worker resources successfully".to_owned();
                    self.record_deletion(&installation, &deleted, message, now).await;
                    deleted?;
                }
                RemovalStep::RemoveFinalizer => {
                    // Created by the programs: garbage collection deletes only what the CDI object owns.
                    self.adopt_program_objects(&installation).await?;
                    // It has no owner: the process that holds it is not an object.
                    let lease = ObjectId::new(&kinds::LEASE, &namespace, CONTROLLER_LEASE);
                    if let Some(found) = self.api.get(&lease).await? {
                        let uid = metadata::uid(&found);
                        self.api.delete(&lease, uid, Propagation::Background).await?;
                    }
                    let mut released = installation.clone();
                    metadata::remove_finalizer(&mut released, FINALIZER);
                    self.write_installation(&installation, &released).await?;
                    tracing::info!("the CDI object {} is removed", metadata::name(&installation));
                    return Ok(PassOutcome::idle());
                }
            }
        }
        Ok(PassOutcome::awaiting())
    }

    async fn list_workers(&self) -> Result<Vec<(ObjectId, Value)>, Error> {
        let mut workers = Vec::new();
        for kind in [&kinds::POD, &kinds::SERVICE] {
            for object in self.api.list(kind, "", Some(WORKER_SELECTOR)).await? {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
                workers.push((ObjectId::new(kind, namespace, metadata::name(&object)), object));
            }
        }
        Ok(workers)
    }

    async fn record_deletion(
        &mut self,
        installation: &Value,
        deleted: &Result<(), Error>,
        message: String,
        now: Timestamp,
    ) {
        let event = match deleted {
            Ok(()) => InstallationEvent::normal(WriteVerb::Delete.success_reason(), message),
            Err(error) => InstallationEvent::warning(
                WriteVerb::Delete.failed_reason(),
                format!(
                    "Failed to delete worker resources or the controller, {}",
                    runtime::chain(error)
                ),
            ),
        };
        self.events.record(&self.api, installation, event, now).await;
    }
}
