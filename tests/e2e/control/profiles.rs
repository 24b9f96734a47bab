//! The StorageProfiles and CDI objects of `docs/examples`, applied as an administrator or the operator of a platform does.

use anyhow::{Context, Result, ensure};
use api::v1beta1::{Cdi, CdiConfig, DataVolume, StorageProfile};
use e2e::{Test, run_installed, run_installed_alone};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use crate::world::{SIZE, disk, example, name, server};

/// The driver of the class `csi`.
const DRIVER: &str = "loop.csi.cdi.test";

/// Creates the class of a profile, applies the profile and waits until its status has the values of its spec.
async fn applied(test: &Test, example_name: &str) -> Result<String> {
    let profile = example(example_name)?.into_iter().next().context("an example has an object")?;
    let class = name(&profile);
    test.create_global::<StorageClass>(json!({
        "metadata": { "name": class }, "provisioner": DRIVER,
        "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
    }))
    .await?;
    let profiles = Api::<StorageProfile>::all(test.client());
    test.wait_among(&profiles, &class, "there", |_| true).await?;
    test.kubectl_ok(&["apply", "--server-side", "-f", "-"], &profile.to_string())?;
    let wanted = profile["spec"].clone();
    let is_taken = |profile: &StorageProfile| {
        let status = serde_json::to_value(&profile.status).unwrap_or_default();
        let members = wanted.as_object().into_iter().flatten();
        members.into_iter().all(|(key, value)| status[key] == *value)
    };
    test.wait_among(&profiles, &class, "taken over", is_taken).await?;
    Ok(class)
}

/// A DataVolume without modes, which the profile then sets.
async fn without_modes(test: &Test, class: &str) -> Result<PersistentVolumeClaim> {
    let server = server(&disk());
    test.apply(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": class },
        "spec": {
            "source": { "http": { "url": server.url_of("/disk.img") } },
            "storage": {
                "storageClassName": class, "resources": { "requests": { "storage": SIZE } },
            },
        },
    }))
    .await?;
    test.succeeded(class).await?;
    test.holds(class, &disk()).await?;
    Ok(test.all::<PersistentVolumeClaim>().get(class).await?)
}

#[test]
fn storage_profiles_of_the_examples_are_applied() {
    run_installed("profiles", async |test| {
        for example in [
            "storageprofile-clone-copy",
            "storageprofile-clone-csi",
            "storageprofile-clone-snapshot",
            "storageprofile-snapshot-source-format",
            "storageprofile-unknown-provisioner",
        ] {
            let class = applied(&test, example).await.context(example)?;
            if example == "storageprofile-unknown-provisioner" {
                let claim = without_modes(&test, &class).await.context(example)?;
                let spec = claim.spec.context("it has a spec")?;
                let modes = (spec.volume_mode.as_deref(), spec.access_modes.unwrap_or_default());
                ensure!(modes == (Some("Filesystem"), vec!["ReadWriteOnce".into()]), "{modes:?}");
                test.all::<DataVolume>().delete(&class, &Default::default()).await?;
            }
            test.remove_global::<StorageClass>(&class).await?;
        }
        Ok(())
    });
}

/// The name of the cluster's CDI object, of which there is at most one.
async fn installation(test: &Test) -> Result<String> {
    let found = Api::<Cdi>::all(test.client()).list(&ListParams::default()).await?.items;
    Ok(found.first().map_or("cdi".into(), ResourceExt::name_any))
}

/// Writes the whole spec of the installation, as a platform's operator does. Fields that it no longer contains are
/// removed.
async fn forward(test: &Test, installation: &str, mut object: Value) -> Result<()> {
    let all = Api::<Cdi>::all(test.client());
    object["metadata"]["name"] = installation.into();
    let Some(present) = all.get_opt(installation).await? else {
        all.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        return Ok(());
    };
    object["metadata"]["resourceVersion"] = present.resource_version().into();
    all.replace(installation, &PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

async fn with_full_config(test: &Test, installation: &str) -> Result<()> {
    let full = example("cdi-full-config")?.into_iter().next().context("it has an object")?;
    let wanted = full["spec"]["config"].clone();
    forward(test, installation, full).await?;
    let configs = Api::<CdiConfig>::all(test.client());
    let is_taken = |config: &CdiConfig| {
        let config = serde_json::to_value(config).unwrap_or_default();
        let status = &config["status"];
        config["spec"]["insecureRegistries"] == wanted["insecureRegistries"]
            && status["uploadProxyURL"] == wanted["uploadProxyURLOverride"]
            // The status lists the classes that exist, and these do not.
            && config["spec"]["filesystemOverhead"] == wanted["filesystemOverhead"]
            && status["defaultPodResourceRequirements"]["limits"]["memory"] == "2Gi"
    };
    test.wait_among(&configs, "config", "as in the CDI object", is_taken).await?;
    // As little as possible, by the same manager: all of it is withdrawn.
    let minimal = example("cdi-minimal")?.into_iter().next().context("it has an object")?;
    forward(test, installation, minimal).await
}

#[test]
fn cdi_objects_of_the_examples_configure_the_cluster() {
    run_installed_alone("cdi-objects", async |test| {
        let configs = Api::<CdiConfig>::all(test.client());
        let before = configs.get("config").await?.spec;
        let installation = installation(&test).await?;
        let outcome = with_full_config(&test, &installation).await;
        // Whatever came of it, the other tests have their settings again.
        let minimal = example("cdi-minimal")?.into_iter().next().context("it has an object")?;
        forward(&test, &installation, minimal).await?;
        let restore = json!([{ "op": "replace", "path": "/spec", "value": before }]);
        let restore = restore.to_string();
        test.kubectl_ok(&["patch", "cdiconfig", "config", "--type=json", "-p", &restore], "")?;
        outcome?;
        let is_restored = |config: &CdiConfig| {
            let status = serde_json::to_value(&config.status).unwrap_or_default();
            config.spec == before
                && status["filesystemOverhead"]["global"] == "0.055"
                && status["uploadProxyURL"] != "https://uploads.example.test"
        };
        test.wait_among(&configs, "config", "as it was", is_restored).await.map(|_| ())
    });
}
