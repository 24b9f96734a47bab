//! One watch for each kind, for all controllers together.

use std::fmt::Debug;
use std::sync::Arc;

use api::labels::{self, component};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Event;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use runtime::decoded::Decoded;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::engine::api_client::{Caches, Kind};
use crate::engine::cache::{Cache, Change};
use crate::engine::error::chain;
use crate::engine::undecodable;
use crate::wake;
use controller_core::meta;
use controller_core::openshift::{INFRASTRUCTURE, PROXY};

/// Objects in one page of a list. A page is in memory as a whole and decoded, next to the pages of the other kinds, and the
/// allocator does not return all of it: with a smaller page, a start takes less memory for as long as the process runs.
const LIST_PAGE: u32 = 100;

/// One watch.
struct Watch<K> {
    api: Api<Decoded<K>>,
    which: watcher::Config,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    fn all(client: &Client) -> Self {
        Self {
            api: Api::all(client.clone()),
            which: watcher::Config::default().page_size(LIST_PAGE),
        }
    }

    fn labelled(mut self, selector: &str) -> Self {
        self.which = self.which.labels(selector);
        self
    }

    fn fields(mut self, selector: &str) -> Self {
        self.which = self.which.fields(selector);
        self
    }

    /// Never ends. A broken watch is restarted with a new list. `absent`: the cluster does not have the kind.
    async fn follow(self, mut take: impl FnMut(watcher::Event<Decoded<K>>), absent: impl Fn()) {
        let mut events = Box::pin(watcher(self.api, self.which).default_backoff());
        let mut is_broken = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    is_broken = false;
                    take(event);
                }
                // Not every cluster has every kind. That is no error, and may change.
                Err(error) if is_absent(&error) => absent(),
                // Logged once: retries are frequent.
                Err(error) if !is_broken => {
                    is_broken = true;
                    tracing::warn!("the watch of {} is broken: {}", K::kind(&()), chain(&error));
                }
                Err(error) => tracing::debug!("a watch is still broken: {}", chain(&error)),
            }
        }
    }
}

impl<K: Kind> Watch<K> {
    async fn keep(
        self,
        engine: Arc<Engine>,
        store: fn(&Caches) -> &Cache<K>,
        route: fn(&Engine, &Change<K>),
    ) {
        let (receiver, observer) = (Arc::clone(&engine), Arc::clone(&engine));
        let take = move |event| {
            let store = store(&receiver.api.caches);
            undecodable::receive(&receiver, store, event, |change| route(&receiver, change));
        };
        self.follow(take, move || store(&observer.api.caches).note_absent()).await;
    }
}

/// Runs all watches. Never ends.
pub async fn follow_all(engine: Arc<Engine>) {
    let client = engine.api.client();
    let workers = [
        component::IMPORTER,
        component::UPLOAD_SERVER,
        component::CLONE_SOURCE,
        component::POPULATOR_PREP,
        component::FORKLIFT_POPULATOR,
    ];
    let workers = format!("{} in ({})", labels::COMPONENT, workers.join(", "));
    let namespace = engine.settings.installation.namespace.clone();
    let kept = || Arc::clone(&engine);
    let mut entrances = Watch::all(&client);
    entrances.api = Api::namespaced(client.clone(), &namespace);
    let mut routes = Watch::all(&client);
    routes.api = Api::namespaced(client.clone(), &namespace);
    let only_infrastructure = format!("metadata.name={INFRASTRUCTURE}");
    let infrastructure = Watch::all(&client).fields(&only_infrastructure);
    let proxy = Watch::all(&client).fields(&format!("metadata.name={PROXY}"));
    let mut pollers = Watch::all(&client).labelled(labels::DATA_IMPORT_CRON);
    pollers.api = Api::namespaced(client.clone(), &namespace);
    let reports = async { engine.recorder.send_queued().await };
    let all = [
        Watch::all(&client).keep(kept(), |s| &s.volumes, wake::volume).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.import_sources, wake::import_source).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.upload_sources, wake::upload_source).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.clone_sources, wake::clone_source).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.ovirt_disks, wake::ovirt_disk).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.openstack_images, wake::openstack_image).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.data_sources, wake::data_source).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.crons, wake::cron).boxed(),
        pollers.keep(kept(), |s| &s.cron_jobs, wake::cron_job).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.snapshots, wake::snapshot).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.claims, wake::claim).boxed(),
        Watch::all(&client)
            .keep(kept(), |s| &s.persistent_volumes, wake::persistent_volume)
            .boxed(),
        Watch::all(&client).labelled(&workers).keep(kept(), |s| &s.pods, wake::pod).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.classes, wake::class).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.profiles, wake::profile).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.drivers, |_, _| ()).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.configs, wake::config).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.installations, wake::installation).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.transfers, wake::transfer).boxed(),
        Watch::all(&client).keep(kept(), |s| &s.snapshot_classes, wake::snapshot_class).boxed(),
        entrances.keep(kept(), |s| &s.ingresses, wake::ingress).boxed(),
        routes.keep(kept(), |s| &s.routes, wake::route).boxed(),
        proxy.keep(kept(), |s| &s.proxies, wake::proxy).boxed(),
        infrastructure.keep(kept(), |s| &s.infrastructures, |_, _| ()).boxed(),
        warnings(&client, kept()).boxed(),
        reports.boxed(),
    ];
    // `join_all` would poll each of so few watches whenever one of them has received something.
    let mut all: FuturesUnordered<_> = all.into_iter().collect();
    while all.next().await.is_some() {}
}

/// Waits until everything was listed once, except snapshots, their classes, forklift's kinds and OpenShift's: not every
/// cluster has any.
pub async fn ready(caches: &Caches) {
    tokio::join!(
        caches.volumes.ready(),
        caches.import_sources.ready(),
        caches.upload_sources.ready(),
        caches.clone_sources.ready(),
        caches.data_sources.ready(),
        caches.crons.ready(),
        caches.cron_jobs.ready(),
        caches.claims.ready(),
        caches.persistent_volumes.ready(),
        caches.pods.ready(),
        caches.classes.ready(),
        caches.profiles.ready(),
        caches.drivers.ready(),
        caches.configs.ready(),
        caches.installations.ready(),
        caches.ingresses.ready(),
        caches.transfers.ready(),
    );
}

/// Warning events about PVCs. Their normal events report no more than their phase, and each would cost three writes.
async fn warnings(client: &Client, engine: Arc<Engine>) {
    let watch = Watch::<Event>::all(client)
        .fields("involvedObject.kind=PersistentVolumeClaim,type=Warning");
    let take = move |event| match event {
        watcher::Event::Apply(Decoded(Ok(event)))
        | watcher::Event::InitApply(Decoded(Ok(event))) => {
            wake::warning(&engine, &event);
        }
        // No event is recorded about another event.
        watcher::Event::Apply(Decoded(Err(event)))
        | watcher::Event::InitApply(Decoded(Err(event))) => {
            let (namespace, name) = (meta::namespace(&event.metadata), meta::name(&event.metadata));
            tracing::debug!("skipping the event {namespace}/{name}: {event}");
        }
        watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone => {}
    };
    watch.follow(take, || ()).await;
}

/// Whether the API server does not have the kind: the list is refused with 404.
fn is_absent(error: &watcher::Error) -> bool {
    let watcher::Error::InitialListFailed(kube::Error::Api(status)) = error else { return false };
    status.code == 404
}
