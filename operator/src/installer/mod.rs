//! Installs, keeps, upgrades and removes what a CDI object describes. Reads the cluster, has [`crate::plan`] decide, and
//! writes; it makes no decision of its own. Every pass starts from the cluster alone, so it can be killed between any two
//! requests.

mod apply;
mod dump;
mod keep;
mod platform;
mod preflight;
mod remove;
mod replace_pods;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::v1beta1::Cdi;
use auth::TlsMinimum;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::api_client::ApiClient;
use crate::certificate_manager::CertificateManager;
use crate::desired::{OperatorEnvironment, PlatformApi};
use crate::error::Error;
use crate::events::{EventRecorder, InstallationEvent};
use crate::kinds::{self, ObjectId};
use crate::metadata;
use crate::metrics::Readiness;
use crate::plan::drift::AcceptedWrite;
use crate::plan::lifecycle::{
    DOWNGRADED, FINALIZER, INSTALLED_VERSION, LifecycleFacts, LifecycleStep, MARKER, lifecycle_step,
};
use crate::plan::status::{Health, Phase, Versions, reason, set_status};

pub(crate) use dump::DUMP;
pub use preflight::{PreflightReport, preflight};

/// The interval of passes while nothing changes.
pub const RESYNC: Duration = Duration::from_secs(60);
/// The interval of passes that wait for a deletion.
const AWAIT: Duration = Duration::from_secs(1);

/// Keeps the installation of one operator.
pub struct Installer {
    api: ApiClient,
    certificates: CertificateManager,
    environment: OperatorEnvironment,
    events: EventRecorder,
    /// Objects that the API server stores in another form than it was sent.
    accepted: BTreeMap<ObjectId, AcceptedWrite>,
    /// The desired objects at the time when obsolete ones were deleted last. `None`: not by this process.
    cleaned_for: Option<Vec<ObjectId>>,
    served_apis: BTreeSet<PlatformApi>,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassOutcome {
    /// The next pass, if nothing changes before.
    pub requeue: Duration,
    pub certificates_created: usize,
    pub readiness: Readiness,
    /// `None`: not read in this pass.
    pub tls_minimum: Option<TlsMinimum>,
}

impl PassOutcome {
    fn idle() -> Self {
        Self {
            requeue: RESYNC,
            certificates_created: 0,
            readiness: Readiness::Unknown,
            tls_minimum: None,
        }
    }

    fn awaiting() -> Self {
        Self { requeue: AWAIT, ..Self::idle() }
    }

    fn merge(&mut self, other: Self) {
        self.requeue = self.requeue.min(other.requeue);
        self.certificates_created += other.certificates_created;
        self.tls_minimum = other.tls_minimum.or(self.tls_minimum.take());
    }
}

impl Installer {
    pub fn new(client: Client, environment: OperatorEnvironment) -> Self {
        let certificates = CertificateManager::new(client.clone(), &environment.namespace);
        Self {
            api: ApiClient::new(client),
            certificates,
            environment,
            events: EventRecorder::default(),
            accepted: BTreeMap::new(),
            cleaned_for: None,
            served_apis: BTreeSet::new(),
        }
    }

    /// One pass over all CDI objects.
    ///
    /// # Errors
    /// The first failure. All that does not depend on it was still done.
    pub async fn pass(&mut self, now: Timestamp) -> Result<PassOutcome, Error> {
        let mut installations = self.api.list(&kinds::CDI, "", None).await?;
        for installation in &mut installations {
            // Lists leave these out of their items.
            installation["apiVersion"] = kinds::CDI.api_version().into();
            installation["kind"] = kinds::CDI.kind.into();
        }
        let mut outcome = PassOutcome::idle();
        let mut failure = None;
        for installation in &installations {
            match self.pass_over(installation, &installations, now).await {
                Ok(one) => outcome.merge(one),
                Err(error) if error.is_conflict() => outcome.merge(PassOutcome::awaiting()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        outcome.readiness = Readiness::from_cdi_objects(&decode_all(&installations));
        failure.map_or(Ok(outcome), Err)
    }

    /// The platform's APIs as the latest pass has found them.
    pub fn served_apis(&self) -> &BTreeSet<PlatformApi> {
        &self.served_apis
    }

    async fn pass_over(
        &mut self,
        installation: &Value,
        installations: &[Value],
        now: Timestamp,
    ) -> Result<PassOutcome, Error> {
        let marker = self.api.get(&self.marker_id()).await?;
        let step = lifecycle_step(&LifecycleFacts {
            installation,
            installations,
            marker: marker.as_ref(),
            operator_version: &self.environment.version,
        });
        let name = metadata::name(installation);
        tracing::debug!(object.name = name, "reconciling the CDI object {name}: {step:?}");
        match (step, marker) {
            (LifecycleStep::Ignore, _) => Ok(PassOutcome::idle()),
            (LifecycleStep::Release, _) => {
                let mut released = installation.clone();
                metadata::remove_finalizer(&mut released, FINALIZER);
                self.write_installation(installation, &released).await?;
                Ok(PassOutcome::idle())
            }
            (LifecycleStep::Remove, _) => self.remove(installation, now).await,
            (LifecycleStep::Reject(message), _) => {
                self.reject(installation, message, now).await?;
                Ok(PassOutcome::idle())
            }
            (LifecycleStep::AwaitOwner, _) => {
                tracing::info!(
                    "waiting for ConfigMap {MARKER} of another CDI object to be deleted"
                );
                Ok(PassOutcome::awaiting())
            }
            (LifecycleStep::RefuseDowngrade, _) => {
                let version = &self.environment.version;
                let observed = installation["status"]["observedVersion"].as_str();
                let observed = observed.unwrap_or_default();
                let message = format!(
                    "{DOWNGRADED}: version {observed} is installed, the operator has version {version}"
                );
                tracing::warn!(object.name = name, "{message}");
                let event = InstallationEvent::warning(reason::CONFIG_ERROR, message);
                self.events.record(&self.api, installation, event, now).await;
                Ok(PassOutcome::idle())
            }
            (LifecycleStep::Claim, _) => self.claim(installation, now).await,
            (LifecycleStep::RestoreMarker, _) => {
                // The next pass compares versions: an older operator may have created the marker now.
                self.create_marker(installation).await?;
                Ok(PassOutcome::awaiting())
            }
            (LifecycleStep::StartDeploying, Some(marker)) => {
                let started = self.start_deploying(installation, now).await?;
                self.keep(started, &marker, now).await
            }
            (LifecycleStep::StartUpgrade, Some(marker)) => {
                let started = self.start_upgrade(installation, now).await?;
                self.keep(started, &marker, now).await
            }
            (LifecycleStep::Keep, Some(marker)) => {
                self.keep(installation.clone(), &marker, now).await
            }
            // The steps above are decided only with a marker.
            (
                LifecycleStep::StartDeploying | LifecycleStep::StartUpgrade | LifecycleStep::Keep,
                None,
            ) => Ok(PassOutcome::awaiting()),
        }
    }

    async fn reject(
        &mut self,
        installation: &Value,
        message: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut rejected = installation.clone();
        let health = Health::rejected(message);
        set_status(&mut rejected, Some(Phase::Error), &Versions::default(), Some(&health), now);
        if rejected != *installation {
            let event = InstallationEvent::warning(reason::CONFIG_ERROR, message);
            self.write_installation(installation, &rejected).await?;
            self.events.record(&self.api, installation, event, now).await;
        }
        Ok(())
    }

    /// Waits for the objects of an earlier installation to go, then creates the marker.
    async fn claim(&mut self, installation: &Value, now: Timestamp) -> Result<PassOutcome, Error> {
        if let Some(object) = self.find_orphan(installation).await? {
            tracing::info!("waiting for {object} of an earlier installation to be deleted");
            return Ok(PassOutcome::awaiting());
        }
        let marker = self.create_marker(installation).await?;
        let started = self.start_deploying(installation, now).await?;
        self.keep(started, &marker, now).await
    }

    async fn create_marker(&self, installation: &Value) -> Result<Value, Error> {
        let mut marker = json!({
            "apiVersion": "v1", "kind": kinds::CONFIG_MAP.kind,
            "metadata": {
                "name": MARKER, "namespace": self.environment.namespace,
                "labels": { api::labels::OPERATOR: "" },
                "ownerReferences": [metadata::installation_reference(installation)],
            },
        });
        if let Some(observed) = installation["status"]["observedVersion"].as_str() {
            // That of a marker that was deleted. If another operator has installed this version, the next pass changes
            // what differs.
            metadata::set_annotation(&mut marker, INSTALLED_VERSION, observed);
        }
        self.api.create(&self.marker_id(), &marker).await
    }

    async fn start_deploying(
        &mut self,
        installation: &Value,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let health = Health::deploying();
        let message = health.progressing.message.clone();
        let event = InstallationEvent::normal(reason::DEPLOY_STARTED, message);
        self.start(installation, Phase::Deploying, &health, event, now).await
    }

    async fn start_upgrade(
        &mut self,
        installation: &Value,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let health = Health::upgrading(&self.environment.version);
        let message = health.degraded.message.clone();
        let event = InstallationEvent::normal(reason::UPGRADE_STARTED, message);
        self.start(installation, Phase::Upgrading, &health, event, now).await
    }

    /// Writes the phase, then records `event`. Returns the CDI object as it is stored.
    async fn start(
        &mut self,
        installation: &Value,
        phase: Phase,
        health: &Health,
        event: InstallationEvent,
        now: Timestamp,
    ) -> Result<Value, Error> {
        let mut started = installation.clone();
        metadata::add_finalizer(&mut started, FINALIZER);
        let versions = Versions::started(&self.environment.version);
        set_status(&mut started, Some(phase), &versions, Some(health), now);
        let started = self.write_installation(installation, &started).await?;
        self.events.record(&self.api, &started, event, now).await;
        Ok(started)
    }

    /// Writes the CDI object if it is changed. There is no status subresource.
    async fn write_installation(&self, before: &Value, after: &Value) -> Result<Value, Error> {
        if before == after {
            return Ok(after.clone());
        }
        let id = ObjectId::new(&kinds::CDI, "", metadata::name(after));
        self.api.replace(&id, after).await
    }

    fn marker_id(&self) -> ObjectId {
        ObjectId::new(&kinds::CONFIG_MAP, &self.environment.namespace, MARKER)
    }
}

/// The CDI objects that can be decoded.
fn decode_all(installations: &[Value]) -> Vec<Cdi> {
    installations.iter().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect()
}
