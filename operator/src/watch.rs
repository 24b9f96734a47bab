//! Wakes the installer when an object of the installation changes. Only metadata is received, and nothing is kept: a pass
//! reads what it needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{StreamExt, pin_mut};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::desired::PlatformApi;
use crate::kinds::{self, Kind, Scope};

/// Kinds that every cluster serves, and those of the CRD that comes with the operator.
static WATCHED_KINDS: [&Kind; 17] = [
    &kinds::CDI,
    &kinds::API_SERVICE,
    &kinds::CLUSTER_ROLE,
    &kinds::CLUSTER_ROLE_BINDING,
    &kinds::CONFIG_MAP,
    // All of them: a CRD of the platform makes more objects desired.
    &kinds::CRD,
    &kinds::DEPLOYMENT,
    &kinds::MUTATING_WEBHOOKS,
    &kinds::NETWORK_POLICY,
    &kinds::POD_DISRUPTION_BUDGET,
    &kinds::RESOURCE_QUOTA,
    &kinds::ROLE,
    &kinds::ROLE_BINDING,
    &kinds::SECRET,
    &kinds::SERVICE,
    &kinds::SERVICE_ACCOUNT,
    &kinds::VALIDATING_WEBHOOKS,
];

/// On all objects that are installed, with a value that depends on the program.
const INSTALLED_SELECTOR: &str = "cdi.kubevirt.io";

/// Watches that end when this is dropped.
pub struct Watches {
    client: Client,
    namespace: String,
    changed: Arc<Notify>,
    tasks: JoinSet<()>,
    platform: BTreeSet<PlatformApi>,
}

impl Watches {
    /// `changed` is notified of each change.
    pub fn start(client: Client, namespace: &str, changed: Arc<Notify>) -> Self {
        let mut watches = Self {
            client,
            namespace: namespace.to_owned(),
            changed,
            tasks: JoinSet::new(),
            platform: BTreeSet::new(),
        };
        for kind in WATCHED_KINDS {
            watches.watch(kind);
        }
        watches
    }

    /// Watches the platform's kinds from the time when they are served.
    pub fn add_platform(&mut self, served: &BTreeSet<PlatformApi>) {
        for api in served {
            let kind = match api {
                PlatformApi::Route => &kinds::ROUTE,
                PlatformApi::Ingress => &kinds::INGRESS,
                PlatformApi::SecurityContextConstraints => &kinds::SECURITY_CONTEXT_CONSTRAINTS,
                PlatformApi::PrometheusRule => &kinds::PROMETHEUS_RULE,
                PlatformApi::ServiceMonitor => &kinds::SERVICE_MONITOR,
                PlatformApi::VolumePopulator => &kinds::VOLUME_POPULATOR,
                // Watched from the start.
                PlatformApi::NetworkPolicy => continue,
            };
            if self.platform.insert(*api) {
                self.watch(kind);
            }
        }
    }

    fn watch(&mut self, kind: &'static Kind) {
        let resource = ApiResource {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            plural: kind.plural.to_owned(),
        };
        let client = self.client.clone();
        let api: Api<PartialObjectMeta<DynamicObject>> = match kind.scope {
            Scope::Cluster => Api::all_with(client, &resource),
            Scope::Namespaced => Api::namespaced_with(client, &self.namespace, &resource),
        };
        self.tasks.spawn(notify_of_changes(api, config(kind), kind, Arc::clone(&self.changed)));
    }
}

/// In the namespace of the installation everything is watched: certificates and markers of upstream CDI's operator have other
/// labels.
fn config(kind: &Kind) -> watcher::Config {
    let config = watcher::Config::default();
    let is_selected = kind.scope == Scope::Cluster && kind != &kinds::CDI && kind != &kinds::CRD;
    if is_selected && kind.origin == kinds::Origin::Kubernetes {
        config.labels(INSTALLED_SELECTOR)
    } else {
        config
    }
}

async fn notify_of_changes(
    api: Api<PartialObjectMeta<DynamicObject>>,
    config: watcher::Config,
    kind: &'static Kind,
    changed: Arc<Notify>,
) {
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_)) => changed.notify_one(),
            Err(error) => {
                let plural = kind.plural;
                tracing::debug!("cannot watch {plural}, retrying: {}", runtime::chain(&error));
            }
        }
    }
}
