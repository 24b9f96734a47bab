//! Without a schedule there is no polling; a digest in the annotation is imported.

use anyhow::ensure;
use api::annotations::cron as key;
use api::v1beta1::DataImportCron;
use e2e::run_installed;

use crate::world::{
    CRON, annotate, cron, disk, name_of, noted, publish, registry, up_to_date,
    up_to_date_condition_is, volumes_are, wait_for_reference, with,
};

#[test]
fn pinned_digest_is_imported() {
    run_installed("by-hand", async |test| {
        let [first, second, third] = [1, 2, 3].map(|number| publish(&test, number));
        let (first, second, third) = (first?, second?, third?);
        test.apply(with(cron(registry(&third), Some("csi")), "schedule", "")).await?;
        let waits = |cron: &DataImportCron| up_to_date_condition_is(cron, "False", "NoDigest");
        test.wait(CRON, "without a digest", waits).await?;
        annotate(&test, key::DESIRED_DIGEST, Some(&first.digest)).await?;
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        let cron = up_to_date(&test).await?;
        ensure!(noted(&cron, key::LAST_TIME).is_none(), "the source was polled");
        test.holds(&name_of(&first), &disk(1)).await?;
        annotate(&test, key::DESIRED_DIGEST, Some(&second.digest)).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;

        // Back to the one before, which is there.
        annotate(&test, key::PINNED_DIGEST, Some(&first.digest)).await?;
        let is_pinned = |cron: &DataImportCron| up_to_date_condition_is(cron, "True", "Pinned");
        test.wait(CRON, "pinned", is_pinned).await?;
        wait_for_reference(&test, "pvc", &name_of(&first)).await?;
        annotate(&test, key::PINNED_DIGEST, None).await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        volumes_are(&test, &[&name_of(&first), &name_of(&second)]).await
    });
}
