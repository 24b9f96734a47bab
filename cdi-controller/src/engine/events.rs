//! Events. A repeat is counted on the event that is there.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as Object, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::error::{chain, reports_terminating_namespace};
use controller_core::event::Event;
use controller_core::meta;
use controller_core::object::{Key, ObjectRef};

/// A repeat is counted on the event in the API server at once, unless that was written this recently. Doubles with each
/// write, up to [`COUNT_PAUSE_MAX`]: a controller that retries for hours must not write for hours.
const COUNT_PAUSE: Duration = Duration::from_secs(10);
/// See [`COUNT_PAUSE`].
const COUNT_PAUSE_MAX: Duration = Duration::from_secs(600);
/// How many different events can be counted.
const REMEMBERED: usize = 8192;
/// So many events may wait in the queue.
const QUEUE_LEN_MAX: usize = 256;
/// Longer messages are refused.
const MESSAGE_LEN_MAX: usize = 1024;
/// Leaves space for the time that follows the object's name.
const NAME_LEN_MAX: usize = 230;

/// An event in the API server.
#[derive(Clone, Debug)]
struct Recorded {
    namespace: String,
    name: String,
    /// How often it happened, including repeats that are not written yet.
    count: i32,
    written_at: Instant,
    /// How long the next write has to wait.
    pause: Duration,
}

/// What to do about an event.
#[derive(Clone, Debug)]
enum Recording {
    Create,
    /// Write the number of its repeats.
    Count(Recorded),
    /// The number is written with a later repeat.
    Postpone,
}

/// Records Kubernetes events.
pub struct EventRecorder {
    client: Client,
    /// Events that were recorded, by the hash of object, component, type, reason and message.
    recorded: Mutex<HashMap<u64, Recorded>>,
    /// Events that wait to be sent by [`EventRecorder::send_queued`].
    queue: mpsc::Sender<Object>,
    queued: tokio::sync::Mutex<mpsc::Receiver<Object>>,
}

impl EventRecorder {
    /// A recorder that has recorded no events yet.
    pub fn new(client: Client) -> Self {
        let (queue, queued) = mpsc::channel(QUEUE_LEN_MAX);
        let queued = tokio::sync::Mutex::new(queued);
        Self { client, recorded: Mutex::new(HashMap::new()), queue, queued }
    }

    /// Queues an event about an object, for callers that must not wait, such as a watch. Where too many wait, it is dropped.
    pub fn enqueue<K>(&self, component: &str, about: &K, event: &Event)
    where
        K: Resource<DynamicType = ()>,
    {
        let metadata = about.meta();
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        };
        if self.queue.try_send(object(component, &about, event, Timestamp::now())).is_err() {
            tracing::debug!(
                "too many events wait: dropping {} of {}",
                event.reason,
                about.name.unwrap_or_default()
            );
        }
    }

    /// Sends what is queued, for ever.
    pub async fn send_queued(&self) {
        let mut queued = self.queued.lock().await;
        while let Some(event) = queued.recv().await {
            if let Err(error) = self.create(&event).await {
                let about = &event.involved_object;
                let (kind, name) = (about.kind.as_deref(), about.name.as_deref());
                tracing::warn!(
                    "cannot create an event about {} {}: {}",
                    kind.unwrap_or_default(),
                    name.unwrap_or_default(),
                    chain(&error)
                );
            }
        }
    }

    /// Records an event about an object, as the controller named `component`. A failure is logged and has no other
    /// consequence.
    pub async fn record(&self, component: &str, about: &ObjectRef, event: &Event) {
        let outcome = self.count_or_create(component, &involved(about), event).await;
        if let Err(kube::Error::Api(status)) = &outcome
            && reports_terminating_namespace(status)
        {
            return;
        }
        if let Err(error) = outcome {
            let reason = &event.reason;
            tracing::warn!("cannot record the event {reason} about {about}: {}", chain(&error));
        }
    }

    async fn count_or_create(
        &self,
        component: &str,
        about: &ObjectReference,
        event: &Event,
    ) -> Result<(), kube::Error> {
        let key = key(component, about, event);
        match self.next(key) {
            Recording::Postpone => return Ok(()),
            Recording::Count(recorded) => match self.count(&recorded).await {
                // Kubernetes removes events after an hour.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                outcome => return outcome,
            },
            Recording::Create => {}
        }
        let object = object(component, about, event, Timestamp::now());
        let recorded = Recorded {
            namespace: meta::namespace(&object.metadata).to_owned(),
            name: meta::name(&object.metadata).to_owned(),
            count: 1,
            written_at: Instant::now(),
            pause: COUNT_PAUSE,
        };
        // Before the request, so that a controller that works on the same object meanwhile counts.
        self.remember(key, recorded);
        let outcome = self.create(&object).await;
        if outcome.is_err() {
            self.lock().remove(&key);
        }
        outcome
    }

    /// Counts the event if it is known.
    fn next(&self, key: u64) -> Recording {
        let mut recorded = self.lock();
        let Some(known) = recorded.get_mut(&key) else { return Recording::Create };
        known.count = known.count.saturating_add(1);
        let now = Instant::now();
        if now.duration_since(known.written_at) < known.pause {
            return Recording::Postpone;
        }
        known.written_at = now;
        known.pause = known.pause.saturating_mul(2).min(COUNT_PAUSE_MAX);
        Recording::Count(known.clone())
    }

    fn remember(&self, key: u64, new: Recorded) {
        let mut recorded = self.lock();
        if recorded.len() >= REMEMBERED {
            let now = Instant::now();
            recorded.retain(|_, one| now.duration_since(one.written_at) < COUNT_PAUSE_MAX);
        }
        if recorded.len() >= REMEMBERED {
            recorded.clear();
        }
        recorded.insert(key, new);
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<u64, Recorded>> {
        self.recorded.lock()
    }

    async fn count(&self, recorded: &Recorded) -> Result<(), kube::Error> {
        let api = Api::<Object>::namespaced(self.client.clone(), &recorded.namespace);
        let patch = json!({ "count": recorded.count, "lastTimestamp": Time(Timestamp::now()) });
        let patch = Patch::Merge(&patch);
        api.patch_metadata(&recorded.name, &PatchParams::default(), &patch).await.map(|_| ())
    }

    async fn create(&self, event: &Object) -> Result<(), kube::Error> {
        let namespace = meta::namespace(&event.metadata);
        let api = Api::<Object>::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), event).await.map(|_| ())
    }
}

/// Of the object, its component, type, reason and message: what makes an event a repeat.
fn key(component: &str, about: &ObjectReference, event: &Event) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (component, &about.uid, event.kind, &event.reason, &event.message).hash(&mut hasher);
    hasher.finish()
}

fn involved(about: &ObjectRef) -> ObjectReference {
    let (api_version, kind) = about.kind.type_meta();
    let Key { namespace, name } = about.key.clone();
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind),
        name: Some(name),
        namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
        uid: about.uid.clone(),
        resource_version: about.resource_version.clone(),
        field_path: None,
    }
}

fn object(component: &str, about: &ObjectReference, event: &Event, now: Timestamp) -> Object {
    let name = about.name.as_deref().unwrap_or_default();
    let stem = name[..name.floor_char_boundary(NAME_LEN_MAX)].trim_end_matches('.');
    let message = &event.message;
    Object {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{:x}", now.as_nanosecond())),
            // Events of what is in no namespace have always been here.
            namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        type_: Some(event.kind.to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(message[..message.floor_char_boundary(MESSAGE_LEN_MAX)].to_owned()),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: None,
        event_time: None::<MicroTime>,
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        action: None,
        related: None,
        series: None,
    }
}
