//! Images that come from elsewhere than a registry.

use anyhow::ensure;
use api::annotations::cron as key;
use api::v1beta1::DataVolume;
use e2e::{Claim, run_installed};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::{
    SIZE, ask, cron, disk, import, noted, refers_to_another, server, up_to_date, volumes_are,
    wait_for_reference,
};

#[test]
fn web_file_is_imported_again_when_its_etag_changes() {
    run_installed("web-cron", async |test| {
        let server = server(1);
        let source = json!({ "http": { "url": server.url_of("/disk.img") } });
        test.apply(cron(source, Some("csi"))).await?;
        let first = import(&test).await?;
        wait_for_reference(&test, "pvc", &first).await?;
        let before = up_to_date(&test).await?;
        test.holds(&first, &disk(1)).await?;
        // Nothing new: one question.
        let asked = server.requests().len();
        let after = ask(&test).await?;
        ensure!(noted(&before, key::DESIRED_DIGEST) == noted(&after, key::DESIRED_DIGEST));
        let asked = server.requests().len() - asked;
        ensure!(asked == 1, "it got {asked} requests");

        server.replace(&disk(2));
        ask(&test).await?;
        let second = refers_to_another(&test, &[&first]).await?;
        up_to_date(&test).await?;
        test.holds(&second, &disk(2)).await?;
        volumes_are(&test, &[&first, &second]).await
    });
}

#[test]
fn recreated_source_pvc_is_another_image() {
    run_installed("claim-cron", async |test| {
        let server = server(1);
        let master = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": "master" },
            "spec": {
                "source": { "http": { "url": server.url_of("/disk.img") } },
                "storage": {
                    "storageClassName": "csi", "volumeMode": "Block",
                    "resources": { "requests": { "storage": SIZE } },
                },
            },
        });
        test.apply(master.clone()).await?;
        test.succeeded("master").await?;
        let source = json!({ "pvc": { "namespace": test.namespace(), "name": "master" } });
        test.apply(cron(source, Some("csi"))).await?;
        let first = refers_to_another(&test, &[]).await?;
        test.holds(&first, &disk(1)).await?;

        let volumes = test.all::<DataVolume>();
        volumes.delete("master", &DeleteParams::default()).await?;
        test.wait_until_gone(&volumes, "master").await?;
        test.wait_until_gone(&test.all::<PersistentVolumeClaim>(), "master").await?;
        server.replace(&disk(2));
        test.apply(master).await?;
        test.succeeded("master").await?;
        ask(&test).await?;
        let second = refers_to_another(&test, &[&first]).await?;
        test.holds(&second, &disk(2)).await
    });
}

#[test]
fn data_source_without_a_cron_is_ready_once_its_source_exists() {
    run_installed("no-cron", async |test| {
        let place = json!({ "namespace": test.namespace(), "name": "disk" });
        test.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
            "metadata": { "name": "fedora" }, "spec": { "source": { "pvc": place } },
        }))
        .await?;
        let is_missed = |source: &api::v1beta1::DataSource| {
            let status = source.status.as_ref();
            let ready =
                crate::world::condition(status.and_then(|s| s.conditions.as_ref()), "Ready");
            ready.is_some_and(|ready| ready.reason.as_deref() == Some("NotFound"))
        };
        test.wait("fedora", "missing its claim", is_missed).await?;
        Claim::block("disk", "csi", SIZE).bound(&test).await?;
        wait_for_reference(&test, "pvc", "disk").await
    });
}
