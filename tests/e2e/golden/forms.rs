//! The source format of golden images: a PVC, or a snapshot.

use anyhow::ensure;
use e2e::{Test, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};

use crate::classes::Class;
use crate::world::{
    SIZE, ask, clones, cron, is_gone, name_of, publish, registry, up_to_date, wait_for_reference,
};

fn snapshots(test: &Test) -> Api<DynamicObject> {
    test.all_of("snapshot.storage.k8s.io", "v1", "VolumeSnapshot")
}

#[test]
fn image_is_kept_in_the_profiles_current_source_format() {
    run_installed("forms", async |test| {
        let class = Class::own(&test, "shots", "snapshot").await?;
        let first = publish(&test, 1)?;
        test.apply(cron(registry(&first), Some(&class.name))).await?;
        wait_for_reference(&test, "snapshot", &name_of(&first)).await?;
        let cron = up_to_date(&test).await?;
        let form = cron.status.and_then(|status| status.source_format);
        ensure!(form.as_deref() == Some("snapshot"), "{form:?}");
        is_gone(&test, &name_of(&first)).await?;
        let taken = snapshots(&test).get(&name_of(&first)).await?;
        for (key, expected) in [
            ("cdi.kubevirt.io/storage.import.advisedRestoreSize", SIZE),
            ("cdi.kubevirt.io/storage.import.sourceVolumeMode", "Block"),
        ] {
            let found = taken.annotations().get(key).map(String::as_str);
            ensure!(found == Some(expected), "{key}: {found:?}");
        }
        clones(&test, "machine-1", &class.name, 1).await?;

        // The next image: the DataSource refers to the snapshot of the first until then, and the snapshot remains.
        let second = publish(&test, 2)?;
        ask(&test).await?;
        wait_for_reference(&test, "snapshot", &name_of(&second)).await?;
        is_gone(&test, &name_of(&second)).await?;
        clones(&test, "machine-2", &class.name, 2).await?;
        snapshots(&test).get(&name_of(&first)).await?;

        class.keep_as("pvc").await?;
        wait_for_reference(&test, "pvc", &name_of(&second)).await?;
        test.wait_until_gone(&snapshots(&test), &name_of(&second)).await?;
        let cron = up_to_date(&test).await?;
        let form = cron.status.and_then(|status| status.source_format);
        ensure!(form.as_deref() == Some("pvc"), "{form:?}");

        class.keep_as("snapshot").await?;
        wait_for_reference(&test, "snapshot", &name_of(&second)).await?;
        is_gone(&test, &name_of(&second)).await?;
        clones(&test, "machine-3", &class.name, 2).await?;
        class.remove().await
    });
}

#[test]
fn class_without_snapshots_keeps_pvcs() {
    run_installed("no-shots", async |test| {
        test.teach("plain", serde_json::json!({ "dataImportCronSourceFormat": "snapshot" }))
            .await?;
        let image = publish(&test, 1)?;
        test.apply(cron(registry(&image), Some("plain"))).await?;
        wait_for_reference(&test, "pvc", &name_of(&image)).await?;
        up_to_date(&test).await?;
        test.all::<PersistentVolumeClaim>().get(&name_of(&image)).await.map(|_| ())?;
        let forgotten = serde_json::json!({ "dataImportCronSourceFormat": null });
        test.teach("plain", forgotten).await
    });
}
