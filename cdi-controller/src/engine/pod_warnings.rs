//! Warning events about worker pods that do not start: listed once in a while for a whole namespace, and not for each
//! of a thousand pods that wait for the same reason.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use runtime::decoded::{Decoded, decodable};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::Error;
use crate::engine::api_client::ApiClient;
use controller_core::meta;

/// Selects the warnings about pods.
const ABOUT_PODS: &str = "involvedObject.kind=Pod,type=Warning";
/// How long a list is valid.
const FRESH: Duration = Duration::from_secs(10);
/// Events in one page of a list.
const PAGE: u32 = 500;

/// A warning event about a pod.
#[derive(Clone, Debug)]
pub struct Warning {
    pub reason: String,
    pub message: String,
    at: Option<Timestamp>,
}

/// The latest warnings, by namespace.
#[derive(Default)]
pub struct PodWarnings(Mutex<HashMap<String, Arc<Mutex<Option<Listed>>>>>);

/// The latest warnings about the worker pods of a namespace, by UID.
struct Listed {
    at: Instant,
    of: HashMap<String, Warning>,
}

impl Listed {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < FRESH
    }
}

impl PodWarnings {
    /// The latest warning about a pod.
    ///
    /// # Errors
    /// [`Error::Api`].
    pub async fn last(&self, cluster: &ApiClient, pod: &Pod) -> Result<Option<Warning>, Error> {
        let namespace = meta::namespace(&pod.metadata);
        let slot = self.slot(namespace).await;
        // Concurrent callers wait for the same list.
        let mut listed = slot.lock().await;
        let listed = match listed.take().filter(Listed::is_fresh) {
            Some(fresh) => listed.insert(fresh),
            None => listed.insert(list(cluster, namespace).await?),
        };
        Ok(listed.of.get(meta::uid(&pod.metadata)).cloned())
    }

    async fn slot(&self, namespace: &str) -> Arc<Mutex<Option<Listed>>> {
        let mut all = self.0.lock().await;
        if !all.contains_key(namespace) {
            // Namespaces without recent callers are removed.
            let is_in_use = |slot: &mut Arc<Mutex<Option<Listed>>>| match slot.try_lock() {
                Ok(listed) => listed.as_ref().is_some_and(Listed::is_fresh),
                Err(_) => true,
            };
            all.retain(|_, slot| is_in_use(slot));
        }
        Arc::clone(all.entry(namespace.to_owned()).or_default())
    }
}

/// Lists the warnings about the worker pods of a namespace; those about its other pods are dropped.
async fn list(cluster: &ApiClient, namespace: &str) -> Result<Listed, Error> {
    let at = Instant::now();
    let events = Api::<Decoded<Event>>::namespaced(cluster.client(), namespace);
    let workers = cluster.caches.pods.within(namespace, |_| true);
    let workers: HashSet<_> = workers.iter().map(|pod| meta::uid(&pod.metadata)).collect();
    let mut of = HashMap::new();
    let mut parameters = ListParams::default().fields(ABOUT_PODS).limit(PAGE);
    loop {
        let page = events.list(&parameters).await.map_err(|source| Error::Api {
            action: "list",
            kind: "events of pods".into(),
            name: namespace.into(),
            source: Box::new(source),
        })?;
        let next = page.metadata.continue_.clone();
        for event in decodable(page) {
            let uid = event.involved_object.uid.clone().unwrap_or_default();
            if workers.contains(uid.as_str()) {
                keep_latest(&mut of, uid, warning(event));
            }
        }
        match next.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(Listed { at, of }),
        }
    }
}

fn warning(event: Event) -> Warning {
    let last = event.last_timestamp.map(|time| time.0);
    Warning {
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        at: last.or(event.event_time.map(|time| time.0)),
    }
}

fn keep_latest(all: &mut HashMap<String, Warning>, uid: String, warning: Warning) {
    if all.get(&uid).is_none_or(|known| known.at <= warning.at) {
        all.insert(uid, warning);
    }
}
