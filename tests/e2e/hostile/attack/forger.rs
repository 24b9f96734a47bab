//! Times in statuses that the API server's schema takes for times and a strict parser does not.

use api::annotations::cron as key;
use e2e::Test;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{cron, make, patch_cron};
use crate::stage::{Stage, image};

/// Between two rounds.
const PAUSE: u64 = 15;
/// `format: date-time` of the API server accepts each of them.
const TIMES: [&str; 4] = [
    "2020-01-01T00:00:00+99:99",
    "2020-01-01T00:00:00x5Z",
    "2020-01-01T00:00:00Ztgarbage",
    "2020-01-01T00:00:00.1234567890123Z",
];

pub async fn attack(tenant: &Test, stage: &Stage) {
    let registry = json!({ "registry": { "url": image(tenant, "none:latest") } });
    for at in 0..TIMES.len() {
        let name = name(at);
        make(tenant, stage, "crons made", "crons refused", cron(&name, &registry)).await;
        let source = json!({ "pvc": { "namespace": tenant.namespace(), "name": "none" } });
        let object = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": format!("{name}-source") }, "spec": { "source": source },
        });
        make(tenant, stage, "DataSources made", "DataSources refused", object).await;
    }
    while !stage.is_over() {
        forge(tenant, stage).await;
        stage.pause(PAUSE).await;
    }
    // The last word is theirs: so it is what a controller finds that begins afterwards.
    forge(tenant, stage).await;
}

fn name(at: usize) -> String {
    format!("forged-time-{at}")
}

async fn forge(tenant: &Test, stage: &Stage) {
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
        stage.count(if forged.is_ok() { "forged times written" } else { "forged times refused" });
    }
}

/// Each field of its own, so that one that is refused does not save the others.
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
