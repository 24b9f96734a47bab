//! An API server in memory, as far as the operator uses one: optimistic locking, owners and garbage collection, finalizers,
//! defaults of some kinds, kinds that are served later, and requests that fail.

#![allow(clippy::unwrap_used, dead_code)] // helpers of tests; not every test uses each

mod defaults;
pub mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// `group/plural/namespace/name`; group and namespace may be empty.
pub type Key = String;

/// 1_800_000_000 seconds.
const DELETED_AT: &str = "2027-01-15T08:00:00Z";

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing is done.
    Refused,
    /// The request is carried out, and its response is lost.
    ResponseLost,
}

/// A request as authorization sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeenRequest {
    pub verb: &'static str,
    pub group: String,
    /// With the subresource.
    pub resource: String,
    pub namespace: String,
    /// Empty for create and list.
    pub name: String,
}

#[derive(Clone, Default)]
pub struct State {
    pub objects: BTreeMap<Key, Value>,
    /// Writes other than events, such as `update apps/deployments/cdi/cdi-apiserver`.
    pub writes: Vec<String>,
    pub events: Vec<Value>,
    pub requests: Vec<SeenRequest>,
    /// The request of this number fails.
    pub failure: Option<(usize, Failure)>,
    /// Creates and updates of this key are rejected with 422.
    pub rejected: BTreeSet<Key>,
    /// `group/plural` of the platform's kinds that are served.
    pub served: BTreeSet<&'static str>,
    count: usize,
    kinds: Vec<bool>,
    version: u64,
}

#[derive(Clone, Default)]
pub struct MemoryApi(pub Arc<Mutex<State>>);

/// Kinds that are served only if a test adds them, with the name of the kind.
pub const PLATFORM: [(&str, &str); 6] = [
    ("route.openshift.io/routes", "Route"),
    ("security.openshift.io/securitycontextconstraints", "SecurityContextConstraints"),
    ("monitoring.coreos.com/prometheusrules", "PrometheusRule"),
    ("monitoring.coreos.com/servicemonitors", "ServiceMonitor"),
    ("populator.storage.k8s.io/volumepopulators", "VolumePopulator"),
    ("cdi.kubevirt.io/cdiconfigs", "CDIConfig"),
];

impl MemoryApi {
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "cdi")
    }

    /// The same state in another server.
    pub fn copied(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    pub fn serve(&self, group_and_plural: &'static str) {
        self.0.lock().unwrap().served.insert(group_and_plural);
    }

    /// Serves the kinds of every platform that the operator has objects for.
    pub fn serve_platforms(&self) {
        for platform in [
            "route.openshift.io/routes",
            "security.openshift.io/securitycontextconstraints",
            "monitoring.coreos.com/prometheusrules",
            "monitoring.coreos.com/servicemonitors",
            "populator.storage.k8s.io/volumepopulators",
        ] {
            self.serve(platform);
        }
    }

    /// Stores an object as another client creates it.
    pub fn put(&self, key: &str, mut object: Value) {
        let mut state = self.0.lock().unwrap();
        let (namespace, name) = key
            .rsplit_once('/')
            .map(|(rest, name)| (rest.rsplit('/').next().unwrap(), name))
            .unwrap();
        object["metadata"]["name"] = name.into();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        state.store_new(key, object);
    }

    pub fn get(&self, key: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(key).cloned()
    }

    /// Changes an object as another client does.
    pub fn edit(&self, key: &str, edit: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock().unwrap();
        let mut object = state.objects.get(key).unwrap_or_else(|| panic!("no {key}")).clone();
        edit(&mut object);
        state.store_changed(key, object);
    }

    pub fn delete(&self, key: &str) {
        self.0.lock().unwrap().delete(key, false);
    }

    /// The controllers of Kubernetes: pods of Deployments become ready, owned objects without owners go.
    pub fn settle(&self) {
        let mut state = self.0.lock().unwrap();
        let deployments: Vec<_> = state
            .objects
            .keys()
            .filter(|key| key.starts_with("apps/deployments/"))
            .cloned()
            .collect();
        for key in deployments {
            let mut object = state.objects[&key].clone();
            if is_terminating(&object) {
                state.release(&key, "foregroundDeletion");
                continue;
            }
            let replicas = object["spec"]["replicas"].as_i64().unwrap_or(1);
            object["status"] = json!({
                "replicas": replicas, "readyReplicas": replicas,
                "observedGeneration": object["metadata"]["generation"],
            });
            if object != state.objects[&key] {
                state.store_changed(&key, object);
            }
        }
        let foreground: Vec<_> = state.objects.keys().cloned().collect();
        for key in foreground {
            state.release(&key, "foregroundDeletion");
        }
        state.collect_garbage();
    }

    pub fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// Of each request since [`Self::fail_request`]: whether it writes.
    pub fn request_kinds(&self) -> Vec<bool> {
        self.0.lock().unwrap().kinds.clone()
    }

    /// Grows with each change.
    pub fn version(&self) -> u64 {
        self.0.lock().unwrap().version
    }

    /// From the next request on, the one of this number fails.
    pub fn fail_request(&self, number: usize, failure: Failure) {
        let mut state = self.0.lock().unwrap();
        state.count = 0;
        state.kinds.clear();
        state.failure = Some((number, failure));
    }

    pub fn event_reasons(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    }
}

impl State {
    fn store_new(&mut self, key: &str, mut object: Value) -> Value {
        self.version += 1;
        defaults::fill(&mut object);
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
        }
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["generation"] = 1.into();
        metadata["creationTimestamp"] = "2027-01-01T00:00:00Z".into();
        self.objects.insert(key.to_owned(), object.clone());
        object
    }

    fn store_changed(&mut self, key: &str, mut object: Value) -> Value {
        let before = self.objects[key].clone();
        defaults::fill(&mut object);
        if object["spec"] != before["spec"] {
            object["metadata"]["generation"] =
                (before["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        if object != before {
            self.version += 1;
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        let is_held =
            object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if is_terminating(&object) && !is_held {
            self.version += 1;
            self.objects.remove(key);
            self.drop_objects_of_crd(key);
        } else {
            self.objects.insert(key.to_owned(), object.clone());
        }
        object
    }

    fn delete(&mut self, key: &str, foreground: bool) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if foreground && !is_terminating(&object) {
            let finalizers = object["metadata"]["finalizers"].as_array().cloned();
            let mut finalizers = finalizers.unwrap_or_default();
            finalizers.push("foregroundDeletion".into());
            object["metadata"]["finalizers"] = finalizers.into();
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = DELETED_AT.into();
        }
        self.store_changed(key, object);
    }

    fn release(&mut self, key: &str, finalizer: &str) {
        let Some(mut object) = self.objects.get(key).cloned() else { return };
        if is_terminating(&object)
            && let Some(all) = object["metadata"]["finalizers"].as_array_mut()
            && all.iter().any(|one| one == finalizer)
        {
            all.retain(|one| one != finalizer);
            self.store_changed(key, object);
        }
    }

    fn collect_garbage(&mut self) {
        loop {
            let uids: BTreeSet<_> =
                self.objects.values().map(|one| one["metadata"]["uid"].to_string()).collect();
            let is_orphan = |object: &Value| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_some_and(|all| {
                    !all.is_empty() && all.iter().all(|one| !uids.contains(&one["uid"].to_string()))
                })
            };
            let orphans: Vec<_> = self
                .objects
                .iter()
                .filter(|(_, object)| is_orphan(object) && !is_terminating(object))
                .map(|(key, _)| key.clone())
                .collect();
            if orphans.is_empty() {
                return;
            }
            for key in orphans {
                self.delete(&key, false);
            }
        }
    }

    /// The objects of a CRD go with it.
    fn drop_objects_of_crd(&mut self, key: &str) {
        let Some(name) = key.strip_prefix("apiextensions.k8s.io/customresourcedefinitions//")
        else {
            return;
        };
        let (plural, group) = name.split_once('.').unwrap();
        let prefix = format!("{group}/{plural}/");
        self.objects.retain(|key, _| !key.starts_with(&prefix));
    }

    fn respond(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        self.count += 1;
        self.kinds.push(*method != Method::GET);
        let failure = self.failure.filter(|(number, _)| *number == self.count);
        match failure {
            Some((_, Failure::Refused)) => status(500, "InternalError", "refused by the test"),
            Some((_, Failure::ResponseLost)) => {
                self.carry_out(method, path, query, body);
                status(504, "Timeout", "lost by the test")
            }
            None => self.carry_out(method, path, query, body),
        }
    }

    fn carry_out(&mut self, method: &Method, path: &str, query: &str, body: Value) -> (u16, Value) {
        let words: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let (group, words) = match words.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            other => panic!("unknown path {other:?}"),
        };
        if words.is_empty() {
            return self.discover(group);
        }
        let (namespace, words) = match words {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let plural = words[0];
        let name = words.get(1).copied().unwrap_or_default();
        let subresource = words.get(2).copied();
        self.see(method, group, plural, namespace, name, subresource);
        let kind = format!("{group}/{plural}");
        let is_platform = PLATFORM.iter().any(|(served, _)| *served == kind);
        if is_platform && !self.served.contains(kind.as_str()) {
            return status(404, "NotFound", "the server could not find the requested resource");
        }
        let key = format!("{kind}/{namespace}/{name}");
        match *method {
            Method::GET if name.is_empty() => (200, self.list(&kind, namespace, query)),
            Method::GET => match self.objects.get(&key) {
                Some(object) => (200, object.clone()),
                None => status(404, "NotFound", "not found"),
            },
            Method::POST if plural == "events" => {
                self.events.push(body.clone());
                (201, body)
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                self.create(&format!("{kind}/{namespace}/{name}"), body)
            }
            Method::PUT => self.update(&key, body, subresource),
            Method::PATCH => panic!("the operator sends no patches here: {path}"),
            Method::DELETE => self.remove(&key, &body),
            _ => status(405, "MethodNotAllowed", "no"),
        }
    }

    fn see(
        &mut self,
        method: &Method,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
    ) {
        let verb = match *method {
            Method::GET if name.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            _ => "delete",
        };
        let resource = match subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural.to_owned(),
        };
        self.requests.push(SeenRequest {
            verb,
            group: group.to_owned(),
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }

    fn discover(&self, group: &str) -> (u16, Value) {
        let mut kinds: Vec<_> = PLATFORM
            .iter()
            .filter(|(served, _)| self.served.contains(served))
            .filter(|(served, _)| served.starts_with(&format!("{group}/")))
            .map(|(_, kind)| json!({ "kind": kind }))
            .collect();
        if group == "networking.k8s.io" {
            kinds.extend([json!({ "kind": "Ingress" }), json!({ "kind": "NetworkPolicy" })]);
        }
        if kinds.is_empty() {
            return status(404, "NotFound", "no such group");
        }
        (200, json!({ "kind": "APIResourceList", "resources": kinds }))
    }

    fn list(&self, kind: &str, namespace: &str, query: &str) -> Value {
        let prefix = match namespace {
            "" => format!("{kind}/"),
            namespace => format!("{kind}/{namespace}/"),
        };
        let selector = query.split('&').find_map(|part| part.strip_prefix("labelSelector="));
        let selector = selector.map(decode);
        let items: Vec<_> = self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| {
                let mut item = object.clone();
                item.as_object_mut().unwrap().remove("kind");
                item.as_object_mut().unwrap().remove("apiVersion");
                item
            })
            .filter(|object| selector.as_deref().is_none_or(|text| is_selected(object, text)))
            .collect();
        json!({ "items": items, "metadata": { "resourceVersion": self.version.to_string() } })
    }

    fn create(&mut self, key: &str, object: Value) -> (u16, Value) {
        if self.objects.contains_key(key) {
            return status(409, "AlreadyExists", "already exists");
        }
        if self.rejected.contains(key) {
            return status(422, "Invalid", "rejected by the test");
        }
        if object["metadata"]["resourceVersion"].is_string() {
            return status(422, "Invalid", "resourceVersion should not be set");
        }
        self.writes.push(format!("create {key}"));
        (201, self.store_new(key, object))
    }

    fn update(&mut self, key: &str, mut object: Value, subresource: Option<&str>) -> (u16, Value) {
        let Some(before) = self.objects.get(key).cloned() else {
            return status(404, "NotFound", "not found");
        };
        if object["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"] {
            return status(409, "Conflict", "the object has been modified");
        }
        if self.rejected.contains(key) {
            return status(422, "Invalid", "rejected by the test");
        }
        let immutable = ["/spec/selector/matchLabels", "/roleRef"];
        if ["apps/", "rbac."].iter().any(|group| key.starts_with(group))
            && immutable.iter().any(|field| object.pointer(field) != before.pointer(field))
        {
            return status(422, "Invalid", "field is immutable");
        }
        self.writes.push(format!("update {key}"));
        match subresource {
            Some("status") => {
                let mut changed = before.clone();
                changed["status"] = object["status"].clone();
                object = changed;
            }
            // The CDI object's status has no subresource.
            _ if !key.starts_with("cdi.kubevirt.io/") => {
                object["status"] = before["status"].clone();
                if object["status"].is_null() {
                    object.as_object_mut().unwrap().remove("status");
                }
            }
            _ => {}
        }
        for field in ["uid", "creationTimestamp", "generation"] {
            object["metadata"][field] = before["metadata"][field].clone();
        }
        (200, self.store_changed(key, object))
    }

    fn remove(&mut self, key: &str, options: &Value) -> (u16, Value) {
        let Some(object) = self.objects.get(key).cloned() else {
            return status(404, "NotFound", "not found");
        };
        let uid = &options["preconditions"]["uid"];
        if uid.is_string() && *uid != object["metadata"]["uid"] {
            return status(409, "Conflict", "another uid");
        }
        self.writes.push(format!("delete {key}"));
        let has_dependents = key.starts_with("apps/deployments/");
        self.delete(key, has_dependents && options["propagationPolicy"] == "Foreground");
        (200, object)
    }
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    (code, status)
}

/// `key`, or `key in (a,b)`.
fn is_selected(object: &Value, selector: &str) -> bool {
    let labels = &object["metadata"]["labels"];
    match selector.split_once(" in (") {
        Some((key, values)) => {
            let value = labels[key].as_str();
            values.trim_end_matches(')').split(',').any(|one| Some(one.trim()) == value)
        }
        None => labels[selector].is_string(),
    }
}

fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let hex = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(hex, 16).unwrap());
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl tower_service::Service<Request<Body>> for MemoryApi {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let query = head.uri.query().unwrap_or_default();
            let (code, response) =
                api.0.lock().unwrap().respond(&head.method, head.uri.path(), query, body);
            let bytes = serde_json::to_vec(&response).unwrap();
            Ok(Response::builder().status(code).body(Body::from(bytes)).unwrap())
        })
    }
}
