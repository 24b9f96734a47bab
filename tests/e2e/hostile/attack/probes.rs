//! Sources that are addresses which only the controllers can reach: their own loopback, and that of a metadata service.

use api::annotations::cron as key;
use e2e::Test;
use serde_json::{Value, json};

use super::registry::{REDIRECT, Trap};
use super::{ask_again, cron, make};
use crate::scenario::{AUTHORITY, CANARY_PORT, Scenario};

/// Between two demands.
const PAUSE: u64 = 10;
/// Given to the loopback device of the controllers' pod, and the address of metadata services.
pub const LINK_LOCAL: &str = "169.254.169.254";

pub async fn attack(tenant: &Test, scenario: &Scenario, trap: &Trap) {
    let sources = sources(trap);
    for (at, (source, checksums)) in sources.iter().enumerate() {
        let mut object = cron(&name(at), source);
        if let Some(url) = checksums {
            object["metadata"]["annotations"] = json!({ key::CHECKSUMS_URL: url });
        }
        make(tenant, scenario, "crons created", "crons refused", object).await;
    }
    while !scenario.is_over() {
        for at in 0..sources.len() {
            ask_again(tenant, scenario, &name(at)).await;
        }
        scenario.pause(PAUSE).await;
    }
}

fn name(at: usize) -> String {
    format!("probe-{at}")
}

/// The URL to probe, and perhaps that of the list of checksums.
fn sources(trap: &Trap) -> Vec<(Value, Option<String>)> {
    let hosts = ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", LINK_LOCAL];
    let mut sources = Vec::new();
    for host in hosts {
        let http = json!({ "http": {
            "url": format!("http://{host}:{CANARY_PORT}/latest/meta-data/"),
            "extraHeaders": ["Metadata-Flavor: Google"],
        } });
        sources.push((http, None));
        let url = format!("docker://{host}:{CANARY_PORT}/image:latest");
        sources.push((json!({ "registry": { "url": url } }), None));
    }
    let redirected = json!({ "http": {
        "url": format!("https://{}{REDIRECT}", trap.address), "certConfigMap": AUTHORITY,
    } });
    sources.push((redirected, None));
    let listed = json!({ "http": {
        "url": format!("https://{}/disk.img", trap.address), "certConfigMap": AUTHORITY,
    } });
    sources.push((listed, Some(format!("http://127.0.0.1:{CANARY_PORT}/SHA256SUMS"))));
    let s3 = json!({ "s3": { "url": format!("http://127.0.0.1:{CANARY_PORT}/bucket/disk.img") } });
    sources.push((s3, None));
    sources
}
