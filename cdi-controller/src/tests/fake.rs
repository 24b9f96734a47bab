//! An in-memory API server with the requests that the controllers use.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};

use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A response body, complete or streamed.
type PollResult = UnsyncBoxBody<Bytes, Infallible>;

/// `plural/namespace/name`. The namespace of a cluster-scoped object is empty.
pub type ObjectPath = String;

#[derive(Clone, Default)]
pub struct State {
    pub objects: BTreeMap<ObjectPath, Value>,
    /// Writes that changed something, events not counted.
    pub writes: Vec<String>,
    pub events: Vec<Value>,
    /// The events that a list request returns.
    pub warnings: Vec<Value>,
    /// All requests.
    pub requests: usize,
    /// The request of this number is executed, and its response is lost.
    pub loses_response: Option<usize>,
    /// The request of this number is refused.
    pub refuses: Option<usize>,
    /// The object that the controllers are not allowed to read.
    pub forbids: Option<ObjectPath>,
    /// Kinds, by their plural, of which the API server refuses new objects with 403 and this message.
    pub refused_kinds: BTreeMap<String, String>,
    /// Namespaces in which creation fails. 404: the namespace does not exist; 403: it is terminating.
    pub closed: BTreeMap<String, u16>,
    /// The result of every SubjectAccessReview.
    pub allows: bool,
    version: u64,
    watches: Vec<Watch>,
}

/// An open watch.
#[derive(Clone)]
struct Watch {
    /// Of the paths that it selects.
    prefix: String,
    lines: UnboundedSender<String>,
}

/// Kinds without a status subresource.
const WITHOUT_STATUS_SUBRESOURCE: [&str; 7] = [
    "cdiconfigs",
    "cdis",
    "dataimportcrons",
    "datasources",
    "volumeclonesources",
    "volumeimportsources",
    "volumeuploadsources",
];

#[derive(Clone, Default)]
pub struct Fake(pub Arc<Mutex<State>>);

impl Fake {
    /// An independent copy of the current state.
    pub fn copied(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Creates or replaces an object as another client would.
    pub fn put(&self, plural: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{version}").into();
        }
        let place = place(plural, &metadata["namespace"], &metadata["name"]);
        state.notify("ADDED", &place, &object);
        state.objects.insert(place, object);
    }

    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let place = format!("{plural}/{namespace}/{name}");
        self.0.lock().unwrap().objects.get(&place).cloned()
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.0.lock().unwrap().version
    }

    /// Changes an object as another client would.
    pub fn change(&self, place: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let version = state.version;
        if let Some(object) = state.objects.get_mut(place) {
            change(object);
            object["metadata"]["resourceVersion"] = version.to_string().into();
            let changed = object.clone();
            state.notify("MODIFIED", place, &changed);
        }
    }

    /// Deletes the objects whose owners no longer exist.
    pub fn collect_garbage(&self) {
        let mut state = self.0.lock().unwrap();
        loop {
            let uids: Vec<_> =
                state.objects.values().map(|object| object["metadata"]["uid"].clone()).collect();
            let is_orphan = |object: &Value| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_some_and(|all| {
                    !all.is_empty() && all.iter().all(|owner| !uids.contains(&owner["uid"]))
                })
            };
            let orphans: Vec<_> = state
                .objects
                .iter()
                .filter(|(_, object)| is_orphan(object) && !is_terminating(object))
                .map(|(place, _)| place.clone())
                .collect();
            if orphans.is_empty() {
                return;
            }
            for place in orphans {
                state.delete(&place);
            }
        }
    }

    /// Deletes an object as another client would.
    pub fn delete(&self, place: &str) {
        self.0.lock().unwrap().delete(place);
    }

    /// Opens a watch: sends the changes since the requested version, then all later ones.
    fn watch(&self, path: &str, query: &str) -> UnboundedReceiver<String> {
        let (lines, receiver) = unbounded_channel();
        let mut state = self.0.lock().unwrap();
        let (namespace, rest) = parts(path);
        let watch = Watch { prefix: prefix(&rest[0], &namespace), lines };
        let since = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let since: u64 = since.and_then(|version| version.parse().ok()).unwrap_or(0);
        for (place, object) in &state.objects {
            let version = object["metadata"]["resourceVersion"].as_str().unwrap();
            if version.parse::<u64>().unwrap() > since {
                watch.send("MODIFIED", place, object);
            }
        }
        state.watches.push(watch);
        receiver
    }

    fn respond(&self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        state.requests += 1;
        let number = state.requests;
        if state.refuses == Some(number) {
            return status(500, "InternalError", "not now");
        }
        let response = state.execute(method, path, query, body);
        match state.loses_response {
            Some(lost) if lost == number => status(504, "Timeout", "the response was lost"),
            _ => response,
        }
    }
}

impl Watch {
    fn send(&self, type_: &str, place: &str, object: &Value) {
        if place.starts_with(&self.prefix) {
            // In this order, as the API server writes them. A closed receiver is ignored.
            let _ = self.lines.send(format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n"));
        }
    }
}

/// The namespace, and what follows it: /api/v1/… or /apis/group/version/…, then perhaps namespaces/NAME, then
/// plural[/name[/status]].
fn parts(path: &str) -> (String, Vec<String>) {
    let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
    let parts = if parts[0] == "api" { &parts[2..] } else { &parts[3..] };
    let owned = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    match parts {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            ((*namespace).to_owned(), owned(rest))
        }
        rest => (String::new(), owned(rest)),
    }
}

/// The prefix of the paths of a kind, in one namespace or in all.
fn prefix(plural: &str, namespace: &str) -> String {
    match namespace {
        "" => format!("{plural}/"),
        namespace => format!("{plural}/{namespace}/"),
    }
}

fn place(plural: &str, namespace: &Value, name: &Value) -> ObjectPath {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{plural}/{}/{}", text(namespace), text(name))
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    (code, status)
}

impl State {
    fn execute(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        let (namespace, parts) = parts(path);
        let (namespace, plural) = (namespace.as_str(), parts[0].as_str());
        let Some(name) = parts.get(1) else {
            if *method == Method::POST && query.contains("dryRun=All") {
                let place = place(plural, &namespace.into(), &body["metadata"]["name"]);
                return if self.objects.contains_key(&place) {
                    status(409, "AlreadyExists", "already exists")
                } else {
                    (201, body)
                };
            }
            if *method == Method::POST {
                return self.create(plural, namespace, body);
            }
            let items = match plural {
                "events" => self.warnings.clone(),
                _ => self.list(plural, namespace, query),
            };
            return (
                200,
                json!({ "items": items, "metadata": { "resourceVersion": self.version.to_string() } }),
            );
        };
        if (method, plural) == (&Method::PATCH, "events") {
            let is_it = |event: &&mut Value| event["metadata"]["name"] == **name;
            let Some(event) = self.events.iter_mut().find(is_it) else {
                return status(404, "NotFound", "not found");
            };
            merge(event, &body);
            return (200, event.clone());
        }
        let is_of_status = parts.get(2).is_some_and(|part| part == "status");
        if is_of_status && WITHOUT_STATUS_SUBRESOURCE.contains(&plural) {
            return status(404, "NotFound", "the server could not find the requested resource");
        }
        let place = format!("{plural}/{namespace}/{name}");
        if *method == Method::GET && self.forbids.as_ref() == Some(&place) {
            return status(403, "Forbidden", "not for you");
        }
        let Some(present) = self.objects.get(&place).cloned() else {
            return status(404, "NotFound", "not found");
        };
        match *method {
            Method::GET => (200, present),
            Method::DELETE => {
                let wanted = &body["preconditions"]["uid"];
                if !wanted.is_null() && wanted != &present["metadata"]["uid"] {
                    return status(409, "Conflict", "another one");
                }
                self.writes.push(format!("delete {place}"));
                self.delete(&place);
                (200, present)
            }
            Method::PATCH | Method::PUT => {
                let wanted = &body["metadata"]["resourceVersion"];
                if !wanted.is_null() && wanted != &present["metadata"]["resourceVersion"] {
                    return status(409, "Conflict", "changed meanwhile");
                }
                let mut changed = present.clone();
                if *method == Method::PUT {
                    changed = body;
                } else {
                    merge(&mut changed, &body);
                }
                self.writes.push(format!("change {place}"));
                if changed != present {
                    self.version += 1;
                    changed["metadata"]["resourceVersion"] = self.version.to_string().into();
                    self.notify("MODIFIED", &place, &changed);
                    self.objects.insert(place.clone(), changed.clone());
                }
                if is_terminating(&changed) && !has_finalizers(&changed) {
                    self.notify("DELETED", &place, &changed);
                    self.objects.remove(&place);
                }
                (200, changed)
            }
            _ => status(405, "MethodNotAllowed", "no"),
        }
    }

    /// The objects of a kind in a namespace, or in all of them, that have the requested label.
    fn list(&self, plural: &str, namespace: &str, query: &str) -> Vec<Value> {
        let prefix = prefix(plural, namespace);
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector="));
        let selector = selector.map(|text| text.replace("%2F", "/").replace("%3D", "="));
        let label = selector.as_deref().and_then(|text| text.split_once('='));
        let has_label = |object: &&Value| {
            label.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
        };
        let all = self.objects.iter().filter(|(place, _)| place.starts_with(&prefix));
        all.map(|(_, object)| object).filter(has_label).cloned().collect()
    }

    /// Removes the object, or marks it as terminating if it has finalizers.
    fn delete(&mut self, place: &str) {
        let Some(object) = self.objects.get_mut(place) else { return };
        if !has_finalizers(object) {
            self.version += 1;
            let mut object = self.objects.remove(place).unwrap();
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            self.notify("DELETED", place, &object);
        } else if !is_terminating(object) {
            self.version += 1;
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            let changed = object.clone();
            self.notify("MODIFIED", place, &changed);
        }
    }

    fn notify(&self, type_: &str, place: &str, object: &Value) {
        for watch in &self.watches {
            watch.send(type_, place, object);
        }
    }

    fn create(&mut self, plural: &str, namespace: &str, mut object: Value) -> (u16, Value) {
        if plural == "events" {
            self.events.push(object.clone());
            return (201, object);
        }
        if plural == "subjectaccessreviews" {
            object["status"] = json!({ "allowed": self.allows });
            return (201, object);
        }
        let place = place(plural, &namespace.into(), &object["metadata"]["name"]);
        match self.closed.get(namespace) {
            Some(403) => {
                let (code, mut answer) =
                    status(403, "Forbidden", "the namespace is being terminated");
                answer["details"] = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
                return (code, answer);
            }
            Some(_) => return status(404, "NotFound", "the namespace is not there"),
            None => {}
        }
        if self.objects.contains_key(&place) {
            return status(409, "AlreadyExists", "already exists");
        }
        if let Some(message) = self.refused_kinds.get(plural) {
            return status(403, "Forbidden", message);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        self.writes.push(format!("create {place}"));
        self.notify("ADDED", &place, &object);
        self.objects.insert(place, object.clone());
        (201, object)
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

impl tower_service::Service<Request<Body>> for Fake {
    type Response = Response<PollResult>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<PollResult>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fake = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let query = head.uri.query().unwrap_or_default();
            if query.split('&').any(|part| part == "watch=true") {
                let lines = fake.watch(head.uri.path(), query);
                let frames = futures_util::stream::unfold(lines, |mut lines| async move {
                    let line = lines.recv().await?;
                    Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), lines))
                });
                let body = StreamBody::new(frames).boxed_unsync();
                return Ok(Response::builder().status(200).body(body).unwrap());
            }
            let (code, answer) = fake.respond(&head.method, head.uri.path(), query, body);
            let bytes = serde_json::to_vec(&answer).unwrap();
            Ok(Response::builder()
                .status(code)
                .body(Full::new(Bytes::from(bytes)).boxed_unsync())
                .unwrap())
        })
    }
}
