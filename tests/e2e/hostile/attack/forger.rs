//! Times in statuses that the API server's schema accepts and a strict parser rejects.

use api::annotations::cron as key;
use e2e::Test;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{cron, make, patch_cron};
use crate::scenario::{Scenario, image};

/// Between two rounds.
const PAUSE: u64 = 15;
/// `format: date-time` of the API server accepts each of them.
const TIMES: [&str; 4] = [
    "2020-01-01T00:00:00+99:99",
    "2020-01-01T00:00:00x5Z",
    "2020-01-01T00:00:00Ztgarbage",
    "2020-01-01T00:00:00.1234567890123Z",
];

pub async fn attack(tenant: &Test, scenario: &Scenario) {
    let registry = json!({ "registry": { "url": image(tenant, "none:latest") } });
    for at in 0..TIMES.len() {
        let name = name(at);
        make(tenant, scenario, "crons created", "crons refused", cron(&name, &registry)).await;
        let source = json!({ "pvc": { "namespace": tenant.namespace(), "name": "none" } });
        let object = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": format!("{name}-source") }, "spec": { "source": source },
        });
        make(tenant, scenario, "DataSources created", "DataSources refused", object).await;
    }
    while !scenario.is_over() {
        forge(tenant, scenario).await;
        scenario.pause(PAUSE).await;
    }
    // The attacker writes last, so that a controller that starts afterwards reads the forged status.
    forge(tenant, scenario).await;
}

fn name(at: usize) -> String {
    format!("forged-time-{at}")
}

async fn forge(tenant: &Test, scenario: &Scenario) {
    let sources = tenant.all_of("cdi.kubevirt.io", "v1beta1", "DataSource");
    for (at, time) in TIMES.iter().enumerate() {
        let name = name(at);
        for status in statuses(time) {
            patch_cron(tenant, &name, &json!({ "status": status })).await;
        }
        let in_annotation = json!({ "metadata": { "annotations": { key::NEXT_TIME: time } } });
        patch_cron(tenant, &name, &in_annotation).await;
        let conditions = json!({ "status": { "conditions": [condition(time)] } });
        let patch = Patch::Merge(conditions);
        let forged =
            sources.patch(&format!("{name}-source"), &PatchParams::default(), &patch).await;
        scenario.count(if forged.is_ok() {
            "forged times written"
        } else {
            "forged times refused"
        });
    }
}

/// One status for each field, so that the refusal of one does not prevent the others.
fn statuses(time: &str) -> [Value; 3] {
    [
        json!({ "lastImportTimestamp": time }),
        json!({ "lastExecutionTimestamp": time }),
        json!({ "conditions": [condition(time)] }),
    ]
}

fn condition(time: &str) -> Value {
    json!({
        "type": "UpToDate", "status": "True",
        "lastHeartbeatTime": time, "lastTransitionTime": time,
    })
}
