//! What all controllers share: access to the API server, the cache and its watches, the work queues, events and metrics.

pub(crate) mod api_client;
pub(crate) mod cache;
mod cache_contents;
mod cache_entry;
mod configured_pods;
mod early_warnings;
mod error;
pub(crate) mod events;
mod execute;
pub(crate) mod image_proof;
pub(crate) mod index;
pub(crate) mod metrics;
mod packed;
mod pod_warnings;
mod pvc_warnings;
pub(crate) mod queue;
pub(crate) mod rights;
mod run;
pub(crate) mod scrape;
mod settings;
pub(crate) mod slots;
pub(crate) mod undecodable;
pub(crate) mod watch;

use std::sync::Arc;

use api::ClaimPhase;
use api::v1beta1::{CdiConfig, CdiConfigSpec, NodePlacement};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub use error::Error;
pub(crate) use error::chain;
pub use run::run;
pub use settings::{FLAGS, NAMESPACE_FILE, Settings};

use controller_core::bound::ObservedEvent;
use controller_core::{config, meta, openshift};

use crate::image_polling::polls::Polls;
use api_client::ApiClient;
use configured_pods::ConfiguredPods;
use early_warnings::EarlyWarnings;
use events::EventRecorder;
use pod_warnings::PodWarnings;
use pvc_warnings::PvcWarnings;
use queue::Queue;
use rights::TokenKeys;
use slots::Slots;

/// What all controllers share.
pub(crate) struct Engine {
    pub(crate) api: ApiClient,
    pub(crate) recorder: EventRecorder,
    pub(crate) pvc_warnings: PvcWarnings,
    pub(crate) early_warnings: EarlyWarnings,
    pub(crate) pod_warnings: PodWarnings,
    /// Upload servers that have their secrets.
    pub(crate) configured_pods: ConfiguredPods,
    /// The results of polling for newer images.
    pub(crate) polls: Polls,
    pub(crate) import_slots: Slots,
    pub(crate) clone_slots: Slots,
    pub(crate) queues: Queues,
    pub(crate) token_keys: TokenKeys,
    pub(crate) settings: Settings,
}

/// A queue for each controller.
#[derive(Default)]
pub(crate) struct Queues {
    /// DataVolumes.
    pub(crate) volumes: Queue,
    /// PVCs that refer to a source of CDI's kinds.
    pub(crate) populators: Queue,
    /// PVCs that are imported into.
    pub(crate) imports: Queue,
    /// PVCs that are uploaded to.
    pub(crate) uploads: Queue,
    /// PVCs that one of forklift's populators fills.
    pub(crate) forklift: Queue,
    /// PVCs that are cloned to.
    pub(crate) clones: Queue,
    /// PVCs that pods copy to.
    pub(crate) copies: Queue,
    /// DataImportCrons.
    pub(crate) crons: Queue,
    /// DataSources.
    pub(crate) data_sources: Queue,
    /// Storage classes, for their profiles.
    pub(crate) profiles: Queue,
    /// The settings.
    pub(crate) configs: Queue,
    /// ObjectTransfers.
    pub(crate) transfers: Queue,
}

impl Queues {
    /// All of them, by the names that metrics have for them.
    pub(crate) fn all(&self) -> [(&'static str, &Queue); 12] {
        [
            ("datavolume", &self.volumes),
            ("populator", &self.populators),
            ("import", &self.imports),
            ("upload", &self.uploads),
            ("forklift", &self.forklift),
            ("clone", &self.clones),
            ("copy", &self.copies),
            ("dataimportcron", &self.crons),
            ("datasource", &self.data_sources),
            ("storageprofile", &self.profiles),
            ("config", &self.configs),
            ("objecttransfer", &self.transfers),
        ]
    }
}

impl Engine {
    pub(crate) fn new(client: kube::Client, settings: Settings) -> Self {
        Self {
            recorder: EventRecorder::new(client.clone()),
            api: ApiClient::new(client),
            pvc_warnings: PvcWarnings::default(),
            early_warnings: EarlyWarnings::default(),
            pod_warnings: PodWarnings::default(),
            configured_pods: ConfiguredPods::default(),
            polls: Polls::default(),
            import_slots: Slots::default(),
            clone_slots: Slots::default(),
            queues: Queues::default(),
            token_keys: TokenKeys::in_directory(&settings.token_keys),
            settings,
        }
    }

    /// The settings in force.
    pub(crate) fn config(&self) -> Option<Arc<CdiConfig>> {
        self.api.caches.config()
    }

    /// The settings in force with the credentials of proxies, which the CDIConfig does not show. For what connects to a proxy,
    /// and nothing that is written to the cluster for others to read.
    pub(crate) fn config_with_credentials(&self) -> Option<Arc<CdiConfig>> {
        let caches = &self.api.caches;
        let installations = caches.installations.list();
        let active = config::active(&installations).ok().flatten();
        let platform = caches.proxies.get("", openshift::PROXY);
        let platform = platform.as_ref().map(|proxy| &proxy.status);
        Some(config::with_credentials(self.config()?, active, platform))
    }

    /// The settings in force.
    pub(crate) fn config_spec(&self) -> CdiConfigSpec {
        self.config().map(|config| config::in_force(&config)).unwrap_or_default()
    }

    /// All storage classes.
    pub(crate) fn classes(&self) -> Arc<Vec<StorageClass>> {
        self.api.caches.classes.list()
    }

    /// Warnings about a PVC. Those about a bound PVC are obsolete, and are dropped.
    pub(crate) fn warnings_about(&self, claim: &PersistentVolumeClaim) -> Vec<ObservedEvent> {
        let (namespace, name) = (meta::namespace(&claim.metadata), meta::name(&claim.metadata));
        if meta::claim_phase(claim) == ClaimPhase::Bound {
            self.pvc_warnings.forget(namespace, name);
        }
        self.pvc_warnings.for_pvc(namespace, name)
    }

    /// The nodes that may run workers: all if several installations compete.
    pub(crate) fn placement(&self) -> Option<NodePlacement> {
        let installations = self.api.caches.installations.list();
        config::active(&installations).ok()??.spec.workload.clone()
    }

    /// The owner of cluster-scoped objects: the installation.
    pub(crate) fn owner(&self) -> Option<OwnerReference> {
        let installations = self.api.caches.installations.list();
        let active = config::active(&installations).ok()??;
        Some(meta::owned_by("cdi.kubevirt.io/v1beta1", "CDI", &active.metadata))
    }

    /// To the second, as Kubernetes writes times.
    pub(crate) fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}
