//! Resident memory of the programs of the installation.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::{NAMESPACE, PATIENCE, Program, Test, Usage};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

/// In MiB. The largest program needs half of it for a hundred DataVolumes.
const MAX: u64 = 128;

/// MiB of each program's process, once all are ready.
pub async fn of_programs(test: &Test) -> Result<BTreeMap<String, u64>> {
    let programs = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    let mut all = BTreeMap::new();
    for program in programs.list(&ListParams::default()).await?.items {
        let name = program.name_any();
        let is_available = |found: &Deployment| {
            let status = found.status.as_ref();
            let count = status.and_then(|status| status.available_replicas);
            count == found.spec.as_ref().and_then(|spec| spec.replicas)
        };
        test.wait_among(&programs, &name, "available", is_available).await.with_context(|| {
            format!("{name} is not available {PATIENCE:?} after the last disturbance")
        })?;
        let pod = Program::named(test, &name).pod().await?;
        let processes = cluster::processes_of_pod(&pod.uid().context("a pod has a uid")?)?;
        let mut sum = 0;
        for process in processes {
            sum += Usage::read(process as u32)?.rss_mib;
        }
        all.insert(name, sum);
    }
    Ok(all)
}

/// The programs are the same, and none has grown beyond its limit.
pub fn check(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Result<()> {
    ensure!(before.keys().eq(after.keys()), "other programs run: {before:?}, then {after:?}");
    let large: Vec<_> = after.iter().filter(|(_, mib)| **mib > MAX).collect();
    ensure!(large.is_empty(), "more than {MAX} MiB: {large:?}, before: {before:?}");
    Ok(())
}
