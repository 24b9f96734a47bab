//! DataImportCrons on a class whose volumes wait for their first consumer: a boot source has none.

use anyhow::ensure;
use api::annotations::request;
use e2e::{annotated, run_installed};
use kube::ResourceExt;

use crate::world::{cron, disk, name_of, publish, registry, up_to_date, wait_for_reference};

const CLASS: &str = "csi-wait";

#[test]
fn cron_that_requests_immediate_binding_imports_to_a_class_that_waits() {
    run_installed("golden-immediate", async |test| {
        let image = publish(&test, 1)?;
        let cron = cron(registry(&image), Some(CLASS));
        test.apply(annotated(cron, request::BIND_IMMEDIATE, "true")).await?;
        let name = name_of(&image);
        wait_for_reference(&test, "pvc", &name).await?;
        up_to_date(&test).await?;
        let import = test.succeeded(&name).await?;
        let requested = import.annotations().get(request::BIND_IMMEDIATE).map(String::as_str);
        ensure!(requested == Some("true"), "the DataVolume has {:?}", import.annotations());
        test.holds(&name, &disk(1)).await
    });
}
