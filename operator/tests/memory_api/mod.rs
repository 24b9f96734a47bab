//! An API server in memory, as far as the operator uses one: optimistic locking, owners and garbage collection, finalizers,
//! defaults of some kinds, kinds that are served later, and requests that fail.

#![allow(clippy::unwrap_used, dead_code)] // helpers of tests; not every test uses each

mod defaults;
mod requests;
pub mod scenario;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use kube::Client;
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

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}
