//! Three hostile tenants attack the installation at once, by all means of a namespace editor or of a pod without
//! credentials, while a fourth tenant works. The test checks the outcome: every operation of the fourth succeeds, no
//! program of the installation restarts, their memory stays bounded, and no attacker reads another namespace's data.
//!
//! `cargo xtask bench hostile MINUTES` is the long run, which keeps its figures.

mod attack;
mod canary;
mod meter;
mod report;
mod scenario;
mod victim;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataImportCron;
use e2e::{Program, Test, results, run_installed_alone};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use attack::{Handout, Neighbours, Servers};
use canary::Canary;
use meter::Restarts;
use scenario::{SECRET_DISK, Scenario};
use victim::Prepared;

const ATTACKERS: usize = 3;
/// Pods of each attacker at a time: two that flood, and imports that never end.
const PODS_MAX: u32 = 5;
const QUOTA: &str = "pods";
/// The CPU request of each worker, so that all of them can be scheduled on the one node: its capacity is not under
/// test.
const WORKER_CPU: &str = "10m";
/// Of the run without `--ignored`.
const SHORT: Duration = Duration::from_secs(90);
/// Settings of the long run in the environment: its duration, and perhaps where figures are kept.
const MINUTES: &str = "CDI_HOSTILE_MINUTES";
const RESULTS: &str = "CDI_HOSTILE_RESULTS";
/// No program of the installation is ever larger. The largest needs a fifth of it without attackers.
const MEMORY_MAX_MIB: u64 = 256;

#[test]
fn tenant_works_while_three_attack() {
    run_installed_alone("hostile", async |vault| run(&vault, SHORT, None).await);
}

#[test]
#[ignore = "takes minutes: `cargo xtask bench hostile`"]
fn tenant_works_for_minutes_while_three_attack() {
    run_installed_alone("hostile", async |vault| {
        let minutes = std::env::var(MINUTES).with_context(|| format!("{MINUTES} is not set"))?;
        let duration = Duration::from_secs(60 * minutes.parse::<u64>()?);
        let folder = std::env::var_os(RESULTS);
        run(&vault, duration, folder.as_deref().map(Path::new)).await
    });
}

/// Everything, for so long; figures are kept in `folder`. The test's own namespace is that of the secret disk.
async fn run(vault: &Test, duration: Duration, folder: Option<&Path>) -> Result<()> {
    let about = results::about()?;
    scenario::set_worker_requests(vault, json!({ "cpu": WORKER_CPU })).await?;
    let secret = e2e::server(&scenario::secret());
    vault.apply(e2e::imported(SECRET_DISK, "csi", "Block", &secret)).await?;
    vault.succeeded(SECRET_DISK).await?;
    let prepared = Prepared::new(vault, Arc::new(vault.tenant().await?)).await?;
    let mut tenants = Vec::new();
    for _ in 0..ATTACKERS {
        let tenant = vault.tenant().await?;
        limit(vault, &tenant).await?;
        tenants.push(tenant);
    }
    let handout = Handout::move_to(&tenants[0], vault).await?;
    attack::load_neighbour(vault)?;

    let scenario = Scenario::prepare(vault, duration).await?;
    let restarts = Restarts::read(vault).await?;
    let canary = Canary::start(vault, duration + Duration::from_secs(60)).await?;
    let servers = Servers::start(&scenario).await?;
    let neighbours = Neighbours::start(&tenants, &scenario).await?;
    handout.attack(&scenario).await?;
    let (operations, samples, ()) = tokio::join!(
        victim::work(&scenario, &prepared),
        meter::watch(vault, &scenario),
        attack::all(&tenants, &scenario, &servers),
    );
    let samples = samples?;
    let floods = neighbours.outcome().await?;
    let after = Restarts::read(vault).await?;
    let addresses = check_addresses(canary);
    let restarted = restart_controllers(vault, &prepared).await;
    // Stolen disks are read by pods of the thieves.
    for tenant in &tenants {
        quotas(vault, tenant).delete(QUOTA, &DeleteParams::default()).await?;
    }

    let outcome = Outcome {
        operations: victim::check(&operations),
        floods: attack::check_floods(&floods),
        restarts: restarts.check(&after),
        memory: check_memory(&samples),
        thefts: attack::check_for_thefts(vault, &tenants, &scenario).await,
        transfer: handout.check(vault).await,
        secrets: servers.trap.check(),
        addresses,
        restarted,
    };
    let mut counts = scenario.counts();
    counts.insert("requests at a tenant's registry", servers.trap.requests());
    let minutes = duration.as_secs() / 60;
    let rows = report::rows(&operations, &samples, &floods, &counts, &outcome.rows());
    let text = report::text(&about, minutes, &rows);
    println!("{text}");
    if let Some(folder) = folder {
        results::keep(folder, "hostile", &about, &rows, &text)?;
    }
    clean_up(vault, &tenants).await?;
    outcome.check()
}

/// Sets a ResourceQuota for pods, as clusters with tenants have, since there is one node. Other objects are not
/// limited.
async fn limit(vault: &Test, tenant: &Test) -> Result<()> {
    let quota = json!({
        "metadata": { "name": QUOTA }, "spec": { "hard": { "pods": PODS_MAX.to_string() } },
    });
    let quota = serde_json::from_value(quota)?;
    quotas(vault, tenant).create(&PostParams::default(), &quota).await?;
    Ok(())
}

fn quotas(vault: &Test, tenant: &Test) -> Api<ResourceQuota> {
    Api::namespaced(vault.client(), tenant.namespace())
}

/// The results of the checks. One failure hides no other.
struct Outcome {
    operations: Result<()>,
    floods: Result<()>,
    restarts: Result<()>,
    memory: Result<()>,
    thefts: Result<()>,
    transfer: Result<()>,
    secrets: Result<()>,
    addresses: Result<()>,
    restarted: Result<()>,
}

impl Outcome {
    fn all(&self) -> [(&'static str, &Result<()>); 9] {
        [
            ("every operation of the victim succeeded", &self.operations),
            ("every flood of connections took place", &self.floods),
            ("no pod of the installation restarted", &self.restarts),
            ("the memory of each program stayed bounded", &self.memory),
            ("no tenant got a disk of another namespace", &self.thefts),
            ("a transferred disk was not filled from its old source", &self.transfer),
            ("no Secret of the installation was sent to a tenant's registry", &self.secrets),
            (
                "the controllers sent no request to a loopback or link-local address",
                &self.addresses,
            ),
            ("controllers that restart with these objects work", &self.restarted),
        ]
    }

    fn rows(&self) -> Vec<Value> {
        let row = |(what, outcome): &(&str, &Result<()>)| {
            let error = outcome.as_ref().err().map(|error| format!("{error:#}"));
            json!({ "row": "check", "check": what, "error": error })
        };
        self.all().iter().map(row).collect()
    }

    fn check(&self) -> Result<()> {
        let failed = self.all().into_iter().filter_map(|(what, outcome)| {
            let error = outcome.as_ref().err()?;
            Some(format!("\n* it is not so that {what}: {error:#}"))
        });
        let failed: String = failed.collect();
        ensure!(failed.is_empty(), "{failed}");
        Ok(())
    }
}

fn check_memory(samples: &[Value]) -> Result<()> {
    for sample in samples {
        let (program, peak) = (&sample["program"], sample["peak_mib"].as_u64().unwrap_or(0));
        ensure!(peak <= MEMORY_MAX_MIB, "{program} had {peak} MiB");
    }
    Ok(())
}

fn check_addresses(canary: Canary) -> Result<()> {
    let connections = canary.connections()?;
    let mut addresses = connections.clone();
    addresses.sort();
    addresses.dedup();
    let often = connections.len();
    ensure!(often == 0, "they connected {often} times, to {}", addresses.join(", "));
    Ok(())
}

/// An administrator replaces the controllers' pod while all objects of the attackers still exist.
async fn restart_controllers(vault: &Test, prepared: &Prepared) -> Result<()> {
    Program::named(vault, "cdi-deployment").lose().await?;
    victim::once_more(prepared).await
}

/// Removes the finalizers that would prevent the deletion of the tenants' namespaces.
async fn clean_up(vault: &Test, tenants: &[Test]) -> Result<()> {
    for tenant in tenants {
        let kind = ApiResource::erase::<DataImportCron>(&());
        let all = Api::<DynamicObject>::namespaced_with(vault.client(), tenant.namespace(), &kind);
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        for cron in all.list(&ListParams::default()).await?.items {
            let is_kept = cron.finalizers().iter().any(|name| !name.starts_with("cdi.kubevirt.io"));
            if is_kept {
                let patched = all.patch(&cron.name_any(), &PatchParams::default(), &patch).await;
                scenario::gone(patched)?;
            }
        }
    }
    scenario::set_worker_requests(vault, Value::Null).await?;
    scenario::remove_settings(vault).await
}
