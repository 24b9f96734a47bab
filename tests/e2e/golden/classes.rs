//! Storage classes of a test's own, and golden images that go with the default one.

use anyhow::{Result, ensure};
use e2e::{Test, run_installed};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use crate::world::{
    class_of, clones, cron, disk, name_of, publish, refers_to_another, registry, up_to_date,
    volumes_are, wait_for_reference,
};

/// The driver with snapshots and clones.
const DRIVER: &str = "loop.csi.cdi.test";
const DEFAULT: &str = "storageclass.kubevirt.io/is-default-virt-class";

/// There is one default, so one test at a time has one.
pub static DEFAULTS: Mutex<()> = Mutex::new(());

/// A class of block devices for this test only, which has to remove it.
pub struct Class<'a> {
    test: &'a Test,
    pub name: String,
}

impl<'a> Class<'a> {
    /// Creates one, whose images are kept as `form`: `pvc` or `snapshot`.
    pub async fn make(test: &'a Test, name: &str, form: &str) -> Result<Self> {
        test.create_global::<StorageClass>(json!({
            "metadata": { "name": name }, "provisioner": DRIVER,
            "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
        }))
        .await?;
        let sets = json!([{ "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" }]);
        let spec = json!({ "claimPropertySets": sets, "dataImportCronSourceFormat": form });
        test.teach(name, spec).await?;
        Ok(Self { test, name: name.to_owned() })
    }

    /// A class of the test's own, distinguished from those of other tests by the namespace.
    pub async fn own(test: &'a Test, suffix: &str, form: &str) -> Result<Self> {
        Self::make(test, &format!("{}-{suffix}", test.namespace()), form).await
    }

    /// Sets the source format of images: `pvc` or `snapshot`.
    pub async fn keep_as(&self, form: &str) -> Result<()> {
        self.test.teach(&self.name, json!({ "dataImportCronSourceFormat": form })).await
    }

    /// Makes it the default class for disks of virtual machines, or removes that annotation.
    pub async fn set_default(&self, is_default: bool) -> Result<()> {
        let mark = is_default.then_some("true");
        let patch = json!({ "metadata": { "annotations": { DEFAULT: mark } } });
        let all = Api::<StorageClass>::all(self.test.client());
        all.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Removes it. Its volumes remain.
    pub async fn remove(self) -> Result<()> {
        self.test.remove_global::<StorageClass>(&self.name).await
    }
}

#[test]
fn changed_default_class_reimports_the_image() {
    let _only = DEFAULTS.lock();
    run_installed("classes", async |test| {
        let [a, b] = [Class::own(&test, "a", "pvc").await?, Class::own(&test, "b", "pvc").await?];
        a.set_default(true).await?;
        let image = publish(&test, 1)?;
        test.apply(cron(registry(&image), None)).await?;
        let first = name_of(&image);
        wait_for_reference(&test, "pvc", &first).await?;
        ensure!(class_of(&test, &first).await? == a.name, "it is on another class");

        a.set_default(false).await?;
        b.set_default(true).await?;
        let second = refers_to_another(&test, &[&first]).await?;
        ensure!(class_of(&test, &second).await? == b.name, "it is on another class");
        up_to_date(&test).await?;
        test.holds(&second, &disk(1)).await?;
        clones(&test, "machine", &b.name, 1).await?;

        // The first class again: its image still exists.
        b.set_default(false).await?;
        a.set_default(true).await?;
        wait_for_reference(&test, "pvc", &first).await?;
        up_to_date(&test).await?;
        volumes_are(&test, &[&first, &second, "machine"]).await?;
        a.remove().await?;
        b.remove().await
    });
}
