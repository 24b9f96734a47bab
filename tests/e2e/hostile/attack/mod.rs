//! The attacks of the hostile tenants. Each continues until the run ends, with the permissions of a tenant; whatever
//! the API server refuses is counted and tried again.

mod crowd;
mod drip;
mod forger;
mod neighbours;
mod probes;
mod registry;
mod slow_imports;
mod thief;
mod transfer;

use anyhow::Result;
use e2e::Test;
use futures_util::future::{LocalBoxFuture, join_all};
use kube::api::DynamicObject;
use serde_json::Value;

use crate::scenario::Scenario;

pub use neighbours::{Neighbours, check_floods, load_neighbour, neighbour};
pub use probes::LINK_LOCAL;
pub use registry::Trap;
pub use thief::check as check_for_thefts;
pub use transfer::Handout;

/// The attackers' servers, on this machine, which is outside the cluster.
pub struct Servers {
    pub trap: Trap,
    drips: drip::Drips,
}

impl Servers {
    /// Starts them; they end when this is dropped.
    pub async fn start(scenario: &Scenario) -> Result<Self> {
        Ok(Self {
            trap: Trap::start(&scenario.certificate).await?,
            drips: drip::Drips::start().await?,
        })
    }
}

/// Names of attacks, separated by commas: only these are run, to find the effect of one.
const ONLY: &str = "CDI_HOSTILE_ATTACKS";

/// Whether an attack is run: all are, unless the environment names others.
pub fn is_wanted(name: &str) -> bool {
    std::env::var(ONLY).map_or(true, |only| only.split(',').any(|one| one == name))
}

/// All attacks of all tenants at once, until the run is over.
pub async fn all(tenants: &[Test], scenario: &Scenario, servers: &Servers) {
    let mut attacks: Vec<LocalBoxFuture<'_, ()>> = vec![Box::pin(scenario.pause(u64::MAX))];
    for tenant in tenants {
        let (trap, drips) = (&servers.trap, &servers.drips);
        let all: [(_, LocalBoxFuture<'_, ()>); 7] = [
            ("thief", Box::pin(thief::attack(tenant, scenario))),
            ("forger", Box::pin(forger::attack(tenant, scenario))),
            ("registry", Box::pin(registry::attack(tenant, scenario, trap))),
            ("probes", Box::pin(probes::attack(tenant, scenario, trap))),
            ("drip", Box::pin(drip::attack(tenant, scenario, drips))),
            ("crowd", Box::pin(crowd::attack(tenant, scenario))),
            ("slow-imports", Box::pin(slow_imports::attack(tenant, scenario, drips))),
        ];
        let wanted = all.into_iter().filter(|(name, _)| is_wanted(name));
        attacks.extend(wanted.map(|(_, attack)| attack));
    }
    join_all(attacks).await;
}

/// Creates an object with the tenant's permissions, and counts whether that was allowed.
async fn make(
    tenant: &Test,
    scenario: &Scenario,
    made: &'static str,
    refused: &'static str,
    object: Value,
) -> Option<DynamicObject> {
    match tenant.apply(object).await {
        Ok(object) => {
            scenario.count(made);
            Some(object)
        }
        Err(_) => {
            scenario.count(refused);
            None
        }
    }
}

/// A DataImportCron that is never polled by its schedule, on devices of the class `csi`.
fn cron(name: &str, source: &Value) -> Value {
    serde_json::json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": { "name": name },
        "spec": {
            "schedule": "0 0 1 1 *", "managedDataSource": name,
            "template": { "spec": { "source": source, "storage": {
                "storageClassName": "csi", "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": e2e::SIZE } },
            } } },
        },
    })
}

/// Requests a poll of a DataImportCron's source at once, as far as a tenant can.
async fn ask_again(tenant: &Test, scenario: &Scenario, name: &str) {
    let key = api::annotations::cron::NEXT_TIME;
    let patch = serde_json::json!({ "metadata": { "annotations": { key: null } } });
    patch_cron(tenant, name, &patch).await;
    scenario.count("polls demanded");
}

/// Patches a cron; its status too, for the kind has no status subresource.
async fn patch_cron(tenant: &Test, name: &str, patch: &Value) {
    let all = tenant.all_of("cdi.kubevirt.io", "v1beta1", "DataImportCron");
    let patch = kube::api::Patch::Merge(patch);
    let _ = all.patch(name, &kube::api::PatchParams::default(), &patch).await;
}
