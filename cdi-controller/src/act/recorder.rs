//! Telling people: events, each once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as Object, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::error::{chain, is_of_ending_namespace};
use crate::event::Event;
use crate::meta;

/// The same words about the same object are not repeated for so long. Kubernetes forgets events after an hour.
const SILENCE: Duration = Duration::from_secs(600);
/// So many events are remembered.
const REMEMBERED: usize = 8192;
/// So many events may wait in the queue.
const QUEUE_LEN_MAX: usize = 256;
/// Longer messages are refused.
const MESSAGE_LEN_MAX: usize = 1024;
/// Room for the time behind an object's name.
const NAME_LEN_MAX: usize = 230;

/// Tells people what happens to objects.
pub struct Recorder {
    client: Client,
    /// When something was told last.
    told: Mutex<HashMap<u64, Instant>>,
    /// Events that wait to be sent by [`Recorder::send_queued`].
    queue: mpsc::Sender<Object>,
    queued: tokio::sync::Mutex<mpsc::Receiver<Object>>,
}

impl Recorder {
    /// Nothing was told yet.
    pub fn new(client: Client) -> Self {
        let (queue, queued) = mpsc::channel(QUEUE_LEN_MAX);
        let queued = tokio::sync::Mutex::new(queued);
        Self { client, told: Mutex::new(HashMap::new()), queue, queued }
    }

    /// Queues an event about an object, for callers that must not wait, such as a watch. Where too many wait, it is dropped.
    pub fn enqueue<K>(&self, component: &str, about: &K, event: &Event)
    where
        K: Resource<DynamicType = ()>,
    {
        if self.queue.try_send(object(component, about, event, Timestamp::now())).is_err() {
            tracing::debug!(
                "too many events wait: dropping {} of {}",
                event.reason,
                meta::name(about.meta())
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

    /// Tells `events` about an object, as the controller named `component`. What cannot be told is logged: no work fails for
    /// want of an audience.
    pub async fn tell<K>(&self, component: &str, about: &K, events: &[Event])
    where
        K: Resource<DynamicType = ()>,
    {
        for event in events {
            if self.is_repeated(about, event) {
                continue;
            }
            let outcome = self.send(component, about, event).await;
            if let Err(kube::Error::Api(status)) = &outcome
                && is_of_ending_namespace(status)
            {
                continue;
            }
            if let Err(error) = outcome {
                let (kind, name) = (K::kind(&()), meta::name(about.meta()));
                let text = chain(&error);
                tracing::warn!("cannot tell of {kind} {name} that {}: {text}", event.reason);
            }
        }
    }

    fn is_repeated<K: Resource>(&self, about: &K, event: &Event) -> bool {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (&about.meta().uid, event.kind, &event.reason, &event.message).hash(&mut hasher);
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= REMEMBERED {
            told.retain(|_, at| now.duration_since(*at) < SILENCE);
        }
        if told.len() >= REMEMBERED {
            told.clear();
        }
        let last = told.insert(hasher.finish(), now);
        last.is_some_and(|at| now.duration_since(at) < SILENCE)
    }

    async fn send<K>(&self, component: &str, about: &K, event: &Event) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = ()>,
    {
        self.create(&object(component, about, event, Timestamp::now())).await
    }

    async fn create(&self, event: &Object) -> Result<(), kube::Error> {
        let namespace = meta::namespace(&event.metadata);
        let api = Api::<Object>::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), event).await.map(|_| ())
    }
}

fn object<K>(component: &str, about: &K, event: &Event, now: Timestamp) -> Object
where
    K: Resource<DynamicType = ()>,
{
    let metadata = about.meta();
    let namespace = metadata.namespace.clone();
    let name = meta::name(metadata);
    let stem = name[..name.floor_char_boundary(NAME_LEN_MAX)].trim_end_matches('.');
    let message = &event.message;
    Object {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{:x}", now.as_nanosecond())),
            // Events of what is in no namespace have always been here.
            namespace: Some(namespace.clone().unwrap_or_else(|| "default".into())),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: metadata.name.clone(),
            namespace,
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path: None,
        },
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
