//! The half that acts: it looks at the cluster, has the plans decide, and carries out what they say.
//!
//! ```text
//! watch ─► store ─► route ─► queue ─► controllers: observe ─► plan (pure, elsewhere) ─► apply ─► status ─► events
//! ```
//!
//! There is one watch for each kind, and all controllers look at the same stores. A piece of work is the name of an object:
//! whatever happened to it, its controller looks at all of it and brings it one step on. So nothing is lost when the process
//! ends between two writes, and a write that was done already is done again without harm.

mod cluster;
mod complaints;
mod controllers;
mod early_warnings;
mod error;
mod golden;
mod golden_proof;
mod index;
mod kept;
mod kinds;
mod lease;
mod page;
mod pod_warnings;
mod polls;
mod queue;
mod recorder;
mod rights;
mod route;
mod run;
mod scrape;
mod served;
mod settings;
mod snapshot_class;
mod store;
mod undecodable;
mod watch;

use std::sync::Arc;

use api::v1beta1::{CdiConfig, CdiConfigSpec, NodePlacement};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

pub use error::{Error, chain};
pub use run::run;
pub use settings::{FLAGS, NAMESPACE_FILE, Settings};

use cluster::Cluster;
use complaints::Complaints;
use early_warnings::EarlyWarnings;
use pod_warnings::PodWarnings;
use polls::Polls;
use queue::Queue;
use recorder::Recorder;
use served::Served;

/// What all controllers share.
pub(crate) struct Context {
    cluster: Cluster,
    recorder: Recorder,
    complaints: Complaints,
    early_warnings: EarlyWarnings,
    pod_warnings: PodWarnings,
    /// Upload servers that have their secrets.
    served: Served,
    /// What sources say of newer images.
    polls: Polls,
    /// Held while a place among the importers is looked for and taken.
    turn: tokio::sync::Mutex<()>,
    queues: Queues,
    settings: Settings,
}

/// A queue for each controller.
#[derive(Default)]
struct Queues {
    /// DataVolumes.
    volumes: Queue,
    /// Claims that refer to a source of ours.
    populators: Queue,
    /// Claims that are imported into.
    imports: Queue,
    /// Claims that are uploaded to.
    uploads: Queue,
    /// Claims that one of forklift's populators fills.
    forklift: Queue,
    /// Claims that are cloned to.
    clones: Queue,
    /// Claims that pods copy to.
    copies: Queue,
    /// DataImportCrons.
    crons: Queue,
    /// DataSources.
    data_sources: Queue,
    /// Storage classes, for their profiles.
    profiles: Queue,
    /// The settings.
    configs: Queue,
    /// ObjectTransfers.
    transfers: Queue,
}

impl Queues {
    /// All of them, by the names that metrics have for them.
    fn all(&self) -> [(&'static str, &Queue); 12] {
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

impl Context {
    fn new(client: kube::Client, settings: Settings) -> Self {
        Self {
            recorder: Recorder::new(client.clone()),
            cluster: Cluster::new(client),
            complaints: Complaints::default(),
            early_warnings: EarlyWarnings::default(),
            pod_warnings: PodWarnings::default(),
            served: Served::default(),
            polls: Polls::default(),
            turn: tokio::sync::Mutex::new(()),
            queues: Queues::default(),
            settings,
        }
    }

    /// The settings in force.
    fn config(&self) -> Option<Arc<CdiConfig>> {
        self.cluster.stores.config()
    }

    /// The settings in force with the credentials of proxies, which the CDIConfig does not show. For what connects to a proxy,
    /// and nothing that is written to the cluster for others to read.
    fn config_with_credentials(&self) -> Option<Arc<CdiConfig>> {
        let stores = &self.cluster.stores;
        let installations = stores.installations.list();
        let active = crate::config::active(&installations).ok().flatten();
        let platform = stores.proxies.get("", crate::openshift::PROXY);
        let platform = platform.as_ref().map(|proxy| &proxy.status);
        Some(crate::config::with_credentials(self.config()?, active, platform))
    }

    /// The settings in force.
    fn config_spec(&self) -> CdiConfigSpec {
        self.config().map(|config| crate::config::in_force(&config)).unwrap_or_default()
    }

    /// All storage classes.
    fn classes(&self) -> Arc<Vec<StorageClass>> {
        self.cluster.stores.classes.list()
    }

    /// Where workers may run. Where nobody knows whose word counts, anywhere.
    fn placement(&self) -> Option<NodePlacement> {
        let installations = self.cluster.stores.installations.list();
        crate::config::active(&installations).ok()??.spec.workload.clone()
    }

    /// Who owns what is made outside of namespaces: the installation.
    fn owner(&self) -> Option<OwnerReference> {
        let installations = self.cluster.stores.installations.list();
        let active = crate::config::active(&installations).ok()??;
        Some(crate::meta::owned_by("cdi.kubevirt.io/v1beta1", "CDI", &active.metadata))
    }

    /// To the second, as Kubernetes writes times.
    fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests;
