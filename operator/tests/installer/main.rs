//! Whole installations against an API server in memory: installed, kept, upgraded, taken over and removed.

#![allow(clippy::unwrap_used)] // helpers of tests, outside of `#[test]` functions

#[path = "../memory_api/mod.rs"]
mod memory_api;

mod keeping;
mod removal;
mod takeover;
mod upgrade;

use memory_api::scenario::{CDI, Objects, Operator};
use memory_api::{Failure, MemoryApi};
use serde_json::Value;

const MARKER: &str = "/configmaps/cdi/cdi-config";
const CONTROLLER: &str = "apps/deployments/cdi/cdi-deployment";
const APISERVER: &str = "apps/deployments/cdi/cdi-apiserver";

fn conditions(api: &MemoryApi) -> [(String, String); 3] {
    let cdi = api.get(CDI).unwrap();
    let all = cdi["status"]["conditions"].as_array().unwrap().clone();
    ["Available", "Progressing", "Degraded"].map(|type_| {
        let condition = all.iter().find(|one| one["type"] == type_).unwrap();
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"))
    })
}

fn states(expected: [(&str, &str); 3]) -> [(String, String); 3] {
    expected.map(|(status, reason)| (status.to_owned(), reason.to_owned()))
}

fn status(api: &MemoryApi, field: &str) -> String {
    api.get(CDI).unwrap()["status"][field].as_str().unwrap_or_default().to_owned()
}

/// All objects without what differs between two runs: times, UIDs, versions, and the bytes of certificates.
fn comparable(api: &MemoryApi) -> Vec<(String, Value)> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for field in [
                    "uid",
                    "resourceVersion",
                    "generation",
                    "observedGeneration",
                    "lastHeartbeatTime",
                    "lastTransitionTime",
                    "caBundle",
                    "operator.cdi.kubevirt.io/updateVersion",
                    "auth.openshift.io/certificate-not-before",
                    "auth.openshift.io/certificate-not-after",
                    "auth.openshift.io/certificate-issuer",
                ] {
                    fields.remove(field);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let state = api.0.lock().unwrap();
    let mut all: Vec<_> =
        state.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
    for (key, object) in &mut all {
        strip(object);
        if key.starts_with("/secrets/") || key.starts_with("/configmaps/") {
            object["data"] = Value::Null;
        }
    }
    all
}

/// Some of the requests about all objects. Every request is too slow for a debug build: CRDs are large.
const STRIDE: usize = 23;

/// Some of the reads. All of them fail the same way: the pass ends, or leaves out one object.
const READ_STRIDE: usize = 4;

/// Runs a scenario once for each of its writes and for some reads, with that request failing, and compares the final states. A
/// response that is lost differs from a refusal for writes only.
async fn fail_each_request(start: &MemoryApi, version: &str, objects: Objects) {
    let reference = start.copied();
    reference.fail_request(usize::MAX, Failure::Refused);
    Operator::of_objects(&reference, version, objects).converge().await;
    let is_write = reference.request_kinds();
    let expected = comparable(&reference);
    let stride = if objects == Objects::All { STRIDE } else { 1 };
    for (index, is_write) in is_write.into_iter().enumerate().step_by(stride) {
        let number = index + 1;
        let failures: &[_] = match (is_write, index % READ_STRIDE) {
            (true, _) => &[Failure::Refused, Failure::ResponseLost],
            (false, 0) => &[Failure::Refused],
            (false, _) => &[],
        };
        for &failure in failures {
            let api = start.copied();
            api.fail_request(number, failure);
            Operator::of_objects(&api, version, objects).converge().await;
            let found = comparable(&api);
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found, expected, "request {number}, {failure:?}");
            }
            assert_eq!(found.len(), expected.len(), "request {number}, {failure:?}");
        }
    }
}
