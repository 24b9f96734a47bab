//! Events on the CDI object. A failure that repeats is not written again for a while.

use std::collections::BTreeMap;

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use crate::api_client::ApiClient;
use crate::metadata;
use crate::plan::status::rfc3339;

/// Of the program that writes the events.
const COMPONENT: &str = "operator-controller";
/// Events about objects without a namespace are in this one.
const CLUSTER_NAMESPACE: &str = "default";
const REPEAT_PAUSE_MINUTES: i64 = 10;
/// Distinct events that are remembered. More are written again.
const REMEMBERED_MAX: usize = 256;
/// API servers reject longer messages.
const MESSAGE_LEN_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    Normal,
    Warning,
}

/// An event about the CDI object or a Route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstallationEvent {
    pub kind: EventKind,
    pub reason: String,
    pub message: String,
}

impl InstallationEvent {
    pub fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { kind: EventKind::Normal, reason: reason.to_owned(), message: message.into() }
    }

    pub fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { kind: EventKind::Warning, reason: reason.to_owned(), message: message.into() }
    }
}

/// Which events were written when.
#[derive(Debug, Default)]
pub struct EventRecorder {
    written: BTreeMap<(String, InstallationEvent), Timestamp>,
    count: u64,
}

impl EventRecorder {
    /// Writes the event unless it was written recently. A failure is logged and has no other consequence.
    pub async fn record(
        &mut self,
        api: &ApiClient,
        about: &Value,
        event: InstallationEvent,
        now: Timestamp,
    ) {
        let key = (metadata::uid(about).to_owned(), event);
        let is_recent = self.written.get(&key).is_some_and(|written| {
            written.checked_add(REPEAT_PAUSE_MINUTES.minutes()).is_ok_and(|end| now < end)
        });
        if is_recent && key.1.kind == EventKind::Warning {
            return;
        }
        if self.written.len() >= REMEMBERED_MAX {
            self.written.clear();
        }
        self.count += 1;
        let namespace = about["metadata"]["namespace"].as_str().unwrap_or(CLUSTER_NAMESPACE);
        let object = event_object(about, namespace, &key.1, self.count, now);
        self.written.insert(key, now);
        if let Err(error) = api.create_event(namespace, &object).await {
            tracing::debug!("cannot write an event: {}", runtime::chain(&error));
        }
    }
}

fn event_object(
    about: &Value,
    namespace: &str,
    event: &InstallationEvent,
    count: u64,
    now: Timestamp,
) -> Value {
    let InstallationEvent { kind, reason, message } = event;
    let kind = match kind {
        EventKind::Normal => api::events::kind::NORMAL,
        EventKind::Warning => api::events::kind::WARNING,
    };
    let message: String = message
        .char_indices()
        .take_while(|(at, character)| at + character.len_utf8() <= MESSAGE_LEN_MAX)
        .map(|(_, character)| character)
        .collect();
    let name = metadata::name(about);
    let time = rfc3339(now);
    let mut involved = json!({
        "apiVersion": about["apiVersion"], "kind": about["kind"], "name": name,
        "uid": metadata::uid(about), "resourceVersion": about["metadata"]["resourceVersion"],
    });
    if about["metadata"]["namespace"].is_string() {
        involved["namespace"] = namespace.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "name": format!("{name}.{:x}{count:04x}", now.as_nanosecond()), "namespace": namespace,
        },
        "involvedObject": involved, "type": kind, "reason": reason, "message": message,
        "source": { "component": COMPONENT }, "reportingComponent": COMPONENT,
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    })
}
