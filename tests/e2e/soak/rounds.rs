//! A round: a hundred DataVolumes are created and disturbed until each has succeeded or is refused as it is to be; then they are
//! compared and deleted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::v1beta1::DataVolume;
use e2e::{Test, phase};
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use testkit::Random;

use crate::disturbances::{Counts, disturb};
use crate::volumes::{GOLDEN, Kind, SoakVolume, Sources};

/// DataVolumes of a round.
const COUNT: usize = 100;
/// A request that fails for longer has another cause than a disturbance.
const REQUEST_MAX: Duration = Duration::from_secs(300);
/// All have succeeded within this time. Pods that were killed often wait up to five minutes before their next start.
const ROUND_MAX: Duration = Duration::from_secs(1800);
const PAUSE: Duration = Duration::from_secs(1);
/// Pods that read volumes at the same time.
const READERS: usize = 8;

/// What a round took.
pub struct Round {
    pub filled: usize,
    pub refused: usize,
    /// Until all had ended.
    pub duration: Duration,
    pub disturbances: usize,
}

impl Round {
    pub async fn run(
        test: &Test,
        sources: &Sources,
        random: &mut Random,
        counts: &mut Counts,
    ) -> Result<Self> {
        let all: Vec<_> = (0..COUNT).map(|number| sources.wanted(test, number)).collect();
        let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
        let before = counts.total();
        let fill = async {
            let outcome = fill(test, sources, &all).await;
            is_over.store(true, Ordering::Relaxed);
            outcome
        };
        let (filled, ()) = tokio::join!(fill, disturb(test, random, counts, &is_over));
        filled?;
        let duration = begin.elapsed();
        compare(test, &all).await?;
        let refused = all.iter().filter(|wanted| wanted.is_refused()).count();
        Ok(Self {
            filled: all.len() - refused,
            refused,
            duration,
            disturbances: counts.total() - before,
        })
    }
}

async fn fill(test: &Test, sources: &Sources, all: &[SoakVolume<'_>]) -> Result<()> {
    for wanted in all {
        create(test, wanted).await?;
    }
    // All at the same time: a server that was killed often waits for its next start, and delays no other upload.
    let uploads = all.iter().filter(|wanted| wanted.kind == Kind::Upload);
    let uploads = try_join_all(uploads.map(|wanted| test.upload(&wanted.name, sources.disk())));
    let (uploaded, ended) = tokio::join!(uploads, all_end(test, all));
    uploaded.map(drop).and(ended)
}

/// Creates a DataVolume, again as long as the API server fails. A request that failed may have been executed.
async fn create(test: &Test, wanted: &SoakVolume<'_>) -> Result<()> {
    let begin = Instant::now();
    while let Err(error) = test.apply(wanted.manifest.clone()).await {
        if matches!(test.all::<DataVolume>().get_opt(&wanted.name).await, Ok(Some(_))) {
            return Ok(());
        }
        if begin.elapsed() > REQUEST_MAX {
            return Err(error.context(format!("cannot create {}", wanted.name)));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn all_end(test: &Test, all: &[SoakVolume<'_>]) -> Result<()> {
    let begin = Instant::now();
    let mut left: Vec<_> = all.iter().collect();
    loop {
        let volumes = test.all::<DataVolume>().list(&ListParams::default()).await;
        let volumes = volumes.map(|list| list.items).unwrap_or_default();
        left.retain(|wanted| {
            let found = volumes.iter().find(|volume| volume.name_any() == wanted.name);
            !found.is_some_and(|volume| wanted.is_ended(volume))
        });
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > ROUND_MAX {
            let names: Vec<_> = left.iter().map(|wanted| (&wanted.name, wanted.kind)).collect();
            let states = volumes.iter().filter(|volume| phase(volume) != "Succeeded");
            let states: Vec<_> = states.map(|volume| (volume.name_any(), &volume.status)).collect();
            bail!("not ended after {ROUND_MAX:?}: {names:?}, of which: {states:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The refused ones are deleted: they have a worker as long as they exist.
async fn compare(test: &Test, all: &[SoakVolume<'_>]) -> Result<()> {
    let (refused, filled): (Vec<_>, Vec<_>) = all.iter().partition(|wanted| wanted.is_refused());
    for wanted in &refused {
        test.wait(&wanted.name, "refused", |volume| wanted.is_ended(volume)).await?;
    }
    delete(test, &refused).await?;
    let compared = filled.iter().map(|wanted| async move {
        test.succeeded(&wanted.name).await?;
        test.holds(&wanted.name, wanted.content).await
    });
    stream::iter(compared).buffer_unordered(READERS).try_collect::<()>().await?;
    let mut names: Vec<_> = filled.iter().map(|wanted| wanted.name.as_str()).collect();
    names.push(GOLDEN);
    test.only_these_are_left(&names).await?;
    delete(test, &filled).await?;
    test.only_these_are_left(&[GOLDEN]).await
}

async fn delete(test: &Test, all: &[&SoakVolume<'_>]) -> Result<()> {
    let volumes = test.all::<DataVolume>();
    for wanted in all {
        volumes.delete(&wanted.name, &DeleteParams::default()).await?;
    }
    for wanted in all {
        test.wait_until_gone(&volumes, &wanted.name).await?;
    }
    Ok(())
}
