//! DataVolumes of every kind are filled, a hundred at a time, while programs of the installation, workers and the cluster's own
//! programs are killed, restarted, paused and cut off. In the end each DataVolume has succeeded with the bytes that it is to
//! have, and nothing else is left.
//!
//! `cargo xtask soak chaos MINUTES` runs it; no part of CI.

mod disturbances;
mod memory;
mod report;
mod rounds;
mod service_manager;
mod volumes;

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::{Test, results, run_installed_alone};
use testkit::Random;

use disturbances::Counts;
use rounds::Round;
use volumes::Sources;

/// Settings in the environment: the duration, and perhaps where figures are kept.
const MINUTES: &str = "CDI_SOAK_MINUTES";
const RESULTS: &str = "CDI_SOAK_RESULTS";

#[test]
#[ignore = "takes minutes: `cargo xtask soak chaos MINUTES`"]
fn disturbed_volumes_are_filled_and_nothing_else_is_left() {
    run_installed_alone("soak", async |test| {
        let minutes = std::env::var(MINUTES).with_context(|| format!("{MINUTES} is not set"))?;
        let minutes: u64 = minutes.parse().with_context(|| format!("{MINUTES}: {minutes}"))?;
        let folder = std::env::var_os(RESULTS);
        tokio::select! {
            outcome = run(&test, minutes, folder.as_deref().map(Path::new)) => outcome,
            never = service_manager::run(&test) => match never {},
        }
    });
}

async fn run(test: &Test, minutes: u64, folder: Option<&Path>) -> Result<()> {
    let about = results::about()?;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    eprintln!("disturbances by the seed {seed}");
    let mut random = Random::new(seed);
    let sources = Sources::prepare(test).await?;
    let memory_before = memory::of_programs(test).await?;

    let begin = Instant::now();
    let mut counts = Counts::default();
    let mut all = Vec::new();
    while begin.elapsed() < Duration::from_secs(60 * minutes) {
        let round = Round::run(test, &sources, &mut random, &mut counts).await?;
        eprintln!("{}", report::line(all.len() + 1, &round));
        all.push(round);
    }
    let memory_after = memory::of_programs(test).await?;

    let rows = report::rows(&all, &counts, &memory_before, &memory_after);
    let text = report::text(&about, minutes, seed, &rows);
    println!("{text}");
    if let Some(folder) = folder {
        results::keep(folder, "chaos", &about, &rows, &text)?;
    }
    ensure!(!all.is_empty(), "no round was run in {minutes} minutes");
    counts.check()?;
    memory::check(&memory_before, &memory_after)
}
