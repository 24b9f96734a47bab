//! Imports that never come to an end, of which there may be so many at a time.

use e2e::{Test, volume};
use serde_json::json;

use super::drip::Drips;
use super::make;
use crate::scenario::Scenario;

/// Of each tenant; each is a pod that waits.
const IMPORTS: usize = 3;

pub async fn attack(tenant: &Test, scenario: &Scenario, drips: &Drips) {
    for at in 0..IMPORTS {
        let source = json!({ "http": { "url": drips.url(at) } });
        let object = volume(&format!("slow-import-{at}"), "csi", "Block", source);
        make(tenant, scenario, "imports that never end", "imports refused", object).await;
        scenario.pause(1).await;
    }
}
