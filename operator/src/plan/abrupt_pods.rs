//! Pods that end without leaving their Service first, as those of upstream CDI: their port is closed, and their packets are
//! lost, while requests are still routed to them. A takeover replaces them.
//!
//! ```text
//! new pods start ─► are ready ─► the Service selects only them ─► kube-proxy follows ─► old pods end ─► plain selector
//!                   └──────────── minReadySeconds of the Deployment ────────────────┘
//! ```

use serde_json::Value;

use crate::kinds::{self, ObjectId};
use crate::metadata;

/// From the readiness of a new pod to the end of an old one: for a pass of the operator, and for kube-proxy.
const ROUTING_SECONDS: u64 = 15;
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Whether requests have to be routed past abrupt pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    Settled,
    /// Abrupt pods still serve: passes have to follow soon.
    InProgress,
}

/// Changes the desired Deployments with abrupt pods, and their Services. `pods`: those of the namespace of the installation.
pub fn route_past_abrupt_pods(desired: &mut [(ObjectId, Value)], pods: &[Value]) -> Routing {
    let mut routing = Routing::Settled;
    for at in 0..desired.len() {
        let (id, deployment) = &mut desired[at];
        if id.kind != &kinds::DEPLOYMENT || is_abrupt(&deployment["spec"]["template"]) {
            continue;
        }
        let serving: Vec<_> = pods.iter().filter(|pod| serves(pod, &id.name)).collect();
        if !serving.iter().any(|pod| is_abrupt(pod)) {
            continue;
        }
        routing = Routing::InProgress;
        deployment["spec"]["minReadySeconds"] = ROUTING_SECONDS.into();
        let own_labels = deployment["spec"]["selector"]["matchLabels"].clone();
        if let Some(hash) = latest_hash(&serving) {
            let services = desired.iter_mut().filter(|(id, _)| id.kind == &kinds::SERVICE);
            for (_, service) in services.filter(|(_, service)| selects_only(service, &own_labels)) {
                service["spec"]["selector"][TEMPLATE_HASH] = hash.into();
            }
        }
    }
    routing
}

/// The template of the ready pod that was created last and is not abrupt.
fn latest_hash<'a>(serving: &[&'a Value]) -> Option<&'a str> {
    let ready = serving.iter().filter(|pod| is_ready(pod) && !is_abrupt(pod));
    let latest = ready.max_by_key(|pod| pod["metadata"]["creationTimestamp"].as_str())?;
    metadata::label(latest, TEMPLATE_HASH)
}

/// Whether a pod of this Deployment gets requests, or will.
fn serves(pod: &Value, deployment: &str) -> bool {
    let owner = metadata::controller(pod).and_then(|owner| owner["name"].as_str());
    let hash = metadata::label(pod, TEMPLATE_HASH);
    let is_owned = owner.zip(hash).is_some_and(|(owner, hash)| {
        owner.strip_suffix(hash).and_then(|name| name.strip_suffix('-')) == Some(deployment)
    });
    is_owned && !metadata::is_terminating(pod)
}

/// `pod`: a pod or the template of one.
fn is_abrupt(pod: &Value) -> bool {
    pod["spec"]["containers"][0]["lifecycle"]["preStop"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

/// Whether the Service is of one Deployment. That of the metrics is of several.
fn selects_only(service: &Value, own_labels: &Value) -> bool {
    let own_labels = own_labels.as_object();
    own_labels.is_some_and(|own| {
        !own.is_empty() && own.iter().all(|(key, value)| service["spec"]["selector"][key] == *value)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "cdi-apiserver";

    fn desired() -> Vec<(ObjectId, Value)> {
        let own_labels = json!({ "cdi.kubevirt.io": NAME });
        let labels = json!({ "cdi.kubevirt.io": NAME, "metrics": "true" });
        let container =
            json!({ "name": NAME, "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } } });
        let template =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let controller = json!({ "spec": { "containers": [{ "name": "cdi-controller" }] } });
        let service = |name: &str| json!({ "spec": { "selector": { "cdi.kubevirt.io": name } } });
        let id = |kind, name: &str| ObjectId::new(kind, "cdi", name);
        vec![
            (id(&kinds::SERVICE, "cdi-api"), service(NAME)),
            (id(&kinds::SERVICE, "cdi-uploadproxy"), service("cdi-uploadproxy")),
            (
                id(&kinds::SERVICE, "metrics"),
                json!({ "spec": { "selector": { "metrics": "true" } } }),
            ),
            (
                id(&kinds::DEPLOYMENT, NAME),
                json!({ "spec": { "selector": { "matchLabels": own_labels }, "template": template } }),
            ),
            (
                id(&kinds::DEPLOYMENT, "cdi-deployment"),
                json!({ "spec": { "template": controller } }),
            ),
        ]
    }

    fn pod(deployment: &str, hash: &str) -> Value {
        json!({
            "metadata": {
                "name": format!("{deployment}-{hash}-x"),
                "creationTimestamp": "2027-01-01T00:00:10Z",
                "labels": { TEMPLATE_HASH: hash },
                "ownerReferences": [{ "controller": true, "name": format!("{deployment}-{hash}") }],
            },
            "spec": { "containers": [{ "name": deployment }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    }

    fn with(mut pod: Value, changes: &[(&str, Value)]) -> Value {
        for (pointer, value) in changes {
            *pod.pointer_mut(pointer).expect("a field") = value.clone();
        }
        pod
    }

    /// A pod of this project.
    fn draining(hash: &str, created: &str, ready: &str) -> Value {
        let lifecycle = json!({ "preStop": { "sleep": { "seconds": 5 } } });
        with(
            pod(NAME, hash),
            &[
                ("/metadata/creationTimestamp", created.into()),
                ("/spec/containers/0", json!({ "name": NAME, "lifecycle": lifecycle })),
                ("/status/conditions/0/status", ready.into()),
            ],
        )
    }

    #[test]
    fn service_selects_new_pods_alone_while_abrupt_ones_serve() {
        let early = "2027-01-01T00:00:20Z";
        let terminating = {
            let mut pod = pod(NAME, "old");
            pod["metadata"]["deletionTimestamp"] = early.into();
            pod
        };
        let foreign = with(
            pod(NAME, "old"),
            &[("/metadata/ownerReferences/0/name", "cdi-apiserver-debug-old".into())],
        );
        let old = || pod(NAME, "old");
        let late = "2027-01-01T00:00:30Z";
        for (case, pods, expected, hash) in [
            ("installation", vec![], Routing::Settled, None),
            ("takeover begins", vec![old()], Routing::InProgress, None),
            (
                "new pod is not ready",
                vec![old(), draining("new", early, "False")],
                Routing::InProgress,
                None,
            ),
            (
                "new pod is ready",
                vec![old(), draining("new", early, "True")],
                Routing::InProgress,
                Some("new"),
            ),
            (
                "template changed again",
                vec![draining("new", early, "True"), draining("newer", late, "True"), old()],
                Routing::InProgress,
                Some("newer"),
            ),
            (
                "old pod is terminating",
                vec![terminating, draining("new", early, "True")],
                Routing::Settled,
                None,
            ),
            ("upgrade", vec![draining("new", early, "True")], Routing::Settled, None),
            ("pod of another owner", vec![foreign], Routing::Settled, None),
            (
                "program without a Service",
                vec![pod("cdi-deployment", "old")],
                Routing::Settled,
                None,
            ),
        ] {
            let mut expected_objects = desired();
            if expected == Routing::InProgress {
                expected_objects[3].1["spec"]["minReadySeconds"] = ROUTING_SECONDS.into();
            }
            if let Some(hash) = hash {
                expected_objects[0].1["spec"]["selector"][TEMPLATE_HASH] = hash.into();
            }
            let mut objects = desired();
            assert_eq!(route_past_abrupt_pods(&mut objects, &pods), expected, "{case}");
            assert_eq!(objects, expected_objects, "{case}");
        }
    }

    /// A patch of the CDI object may remove the hook. Then every pod is abrupt, and there is nothing to route to.
    #[test]
    fn programs_that_are_to_end_abruptly_are_left_alone() {
        let mut objects = desired();
        objects[3].1["spec"]["template"]["spec"]["containers"][0] = json!({ "name": NAME });
        let expected = objects.clone();
        let routing = route_past_abrupt_pods(&mut objects, &[pod(NAME, "old")]);
        assert_eq!((routing, objects), (Routing::Settled, expected));
    }
}
