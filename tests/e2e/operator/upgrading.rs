//! From an earlier version to the next one under load, back to an earlier one, and operators that are killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::v1beta1::Cdi;
use e2e::{PAUSE, Program, Test};
use kube::api::Api;
use testkit::Random;

use crate::admission_probe::{AdmissionProbe, Tolerance};
use crate::installation::{
    CR, allow_plain_registry, apply, available, operator_of_version, operator_version,
    release_file, remove, run_where_nothing_is_installed,
};
use crate::load::{Load, Workers};

/// Older than every release.
const EARLIER: &str = "v0.0.1";
const LATER: &str = "v99.0.0";
/// How often one of the programs is killed during the upgrade.
const KILLS: u64 = 6;
const KILL_INTERVAL_MS: u64 = 3000;

#[test]
fn upgrade_under_load_imports_nothing_twice_and_admits_everything() {
    run_where_nothing_is_installed("upgrade", async |test| {
        let current = release_file("cdi-operator.yaml")?;
        apply(&test, &operator_of_version(EARLIER)?)?;
        apply(&test, &release_file("cdi-cr.yaml")?)?;
        available(&test, Some(EARLIER)).await?;
        allow_plain_registry(&test)?;
        let load = Load::start(&test).await?;
        let probe = AdmissionProbe::start(&test);
        apply(&test, &current)?;
        let version = operator_version(&current)?;
        available(&test, Some(&version)).await?;
        load.finish(&test, Workers::One).await?;
        probe.finish(Tolerance::None).await?;
        earlier_operator_is_refused(&test, &version).await?;
        remove(&test, &current).await
    });
}

/// An operator of an earlier version changes nothing and logs the reason.
async fn earlier_operator_is_refused(test: &Test, version: &str) -> Result<()> {
    apply(test, &operator_of_version(LATER)?)?;
    available(test, Some(LATER)).await?;
    apply(test, &release_file("cdi-operator.yaml")?)?;
    Program::named(test, "cdi-operator").pod().await?;
    let begin = std::time::Instant::now();
    loop {
        let log = Program::named(test, "cdi-operator").log().await.unwrap_or_default();
        if log.contains("operator downgraded, will not reconcile") {
            break;
        }
        ensure!(begin.elapsed() < crate::installation::PATIENCE, "the log has no reason: {log}");
        tokio::time::sleep(10 * PAUSE).await;
    }
    let cdi = Api::<Cdi>::all(test.client()).get(CR).await?;
    let status = cdi.status.context("it has a status")?;
    ensure!(status.observed_version.as_deref() == Some(LATER), "{version}: {status:?}");
    Ok(())
}

#[test]
fn killed_programs_do_not_stop_an_upgrade() {
    run_where_nothing_is_installed("upgrade-kills", async |test| {
        let current = release_file("cdi-operator.yaml")?;
        apply(&test, &operator_of_version(EARLIER)?)?;
        apply(&test, &release_file("cdi-cr.yaml")?)?;
        available(&test, Some(EARLIER)).await?;
        allow_plain_registry(&test)?;
        let load = Load::start(&test).await?;
        apply(&test, &current)?;
        let seed = u64::from(std::process::id());
        eprintln!("seed of the moments: {seed}");
        let mut random = Random::new(seed);
        let programs = ["cdi-operator", "cdi-deployment", "cdi-apiserver"];
        for kill in 0..KILLS {
            tokio::time::sleep(Duration::from_millis(random.below(KILL_INTERVAL_MS))).await;
            let program = programs[usize::try_from(kill % 3)?];
            // A program that is being replaced may have no process at this moment.
            let killed = Program::named(&test, program).crash().await;
            eprintln!("{program}: {killed:?}");
        }
        available(&test, Some(&operator_version(&current)?)).await?;
        load.finish(&test, Workers::MayBeKilled).await?;
        remove(&test, &current).await
    });
}
