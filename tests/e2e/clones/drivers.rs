//! Drivers that refuse to clone, do not support it, or never finish: pods copy instead.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{Test, phase};
use futures_util::future::try_join_all;

use crate::world::{CANNOT, IS_SLOW, REFUSES, clone_of, golden, noted, run, running, was_made};

/// Name, class, golden disk, reason of the event, start of its message.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static str);

const CASES: [Case; 3] = [
    ("refused", REFUSES, "golden", "CloneRefusedByDriver", "The storage driver refused to clone: "),
    (
        "never-could",
        CANNOT,
        "golden-plain",
        "CloneRefusedByDriver",
        "The storage driver refused to clone: ",
    ),
    ("slow", IS_SLOW, "golden", "CloneTimedOut", "The storage driver did not clone within 5 s"),
];

#[test]
fn driver_that_cannot_clone_falls_back_to_a_copy_with_a_reason() {
    run("drivers", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block"), ("golden-plain", "plain", "Block")]).await?;
        for (name, class, disk, ..) in CASES {
            test.apply(clone_of(name, class, &far, disk)).await?;
        }
        let test_here = &*test;
        let all = CASES.iter().map(|case| async move {
            check(test_here, case).await.with_context(|| format!("{case:?}"))
        });
        try_join_all(all).await?;
        let names: Vec<_> = CASES.iter().map(|case| case.0).collect();
        test.clones_leave(&names, &[]).await?;
        far.clones_leave(&["golden", "golden-plain"], &[]).await
    });
}

async fn check(test: &Test, case: &Case) -> Result<()> {
    let (name, _, _, reason, words) = *case;
    if reason == "CloneTimedOut" {
        let is_reported = |volume: &DataVolume| {
            running(volume).contains("the storage to clone the volume")
                || phase(volume) == "Succeeded"
        };
        test.wait(name, "reported to wait for the storage", is_reported).await?;
    }
    let message = test.event_message_of("PersistentVolumeClaim", name, reason).await?;
    ensure!(message.starts_with(words), "the event is {message}");
    let claim = was_made(test, name, "copy").await?;
    let reason = noted(&claim, "cdi.kubevirt.io/cloneFallbackReason").unwrap_or_default();
    ensure!(reason.starts_with(words), "the annotation is {reason}");
    Ok(())
}
