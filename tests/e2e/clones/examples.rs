//! The clones of `docs/examples`, from sources with the names in the examples.

use anyhow::{Context, Result, ensure};
use e2e::{Test, is_bound};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::Value;

use crate::world::{disk, example, golden, noted, run};

/// A class whose profile names modes, so that a clone may leave them out.
const CLASS: &str = "csi";
/// What the examples clone.
const SOURCE: &str = "my-favorite-vm-disk";
/// More than the sources have.
const LARGER: &str = "96Mi";

/// The objects of an example with the source in the namespace of `from`, on a class of this cluster. A size that it gives is
/// made small.
fn small(name: &str, from: &Test) -> Result<Vec<Value>> {
    let mut objects = example(name)?;
    for object in &mut objects {
        if let Some(source) = object.pointer_mut("/spec/source").and_then(Value::as_object_mut) {
            for kind in ["pvc", "snapshot"] {
                if let Some(source) = source.get_mut(kind) {
                    source["namespace"] = from.namespace().into();
                }
            }
        }
        let place =
            if object["kind"] == "PersistentVolumeClaim" { "/spec" } else { "/spec/storage" };
        let Some(storage) = object.pointer_mut(place) else { continue };
        storage["storageClassName"] = CLASS.into();
        if let Some(size) = storage.pointer_mut("/resources/requests/storage") {
            *size = LARGER.into();
            // As the source is, if the example has no mode: the profile's first is another.
            if storage["volumeMode"].is_null() {
                storage["volumeMode"] = "Block".into();
            }
        }
    }
    Ok(objects)
}

async fn apply(test: &Test, objects: Vec<Value>) -> Result<()> {
    for object in objects {
        test.apply(object).await?;
    }
    Ok(())
}

/// Checks that a DataVolume is a clone with the bytes of its source.
async fn is_clone(test: &Test, name: &str) -> Result<()> {
    let volume = test.succeeded(name).await?;
    let method = volume.annotations().get("cdi.kubevirt.io/cloneType");
    ensure!(method.is_some(), "{name} does not record how it was cloned");
    test.holds(name, &disk()).await
}

#[test]
fn example_clones_have_their_sources_content() {
    run("examples", async |test| {
        golden(&test, &[(SOURCE, CLASS, "Block"), ("block-source", CLASS, "Block")]).await?;
        for (name, clone) in [
            ("dv-clone-pvc", "cloned-datavolume"),
            ("dv-clone-pvc-expand", "bigger-copy"),
            ("dv-clone-pvc-mode-change", "test-target"),
        ] {
            apply(&test, small(name, &test)?).await.context(name)?;
            is_clone(&test, clone).await.context(name)?;
        }
        let claims = test.all::<PersistentVolumeClaim>();
        let larger = serde_json::to_value(claims.get("bigger-copy").await?)?;
        let size = &larger["spec"]["resources"]["requests"]["storage"];
        ensure!(size == LARGER, "bigger-copy has {size}");
        let target = claims.get("test-target").await?;
        let mode = target.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
        ensure!(mode == Some("Filesystem"), "test-target: {mode:?}");

        apply(&test, small("populator-clone", &test)?).await?;
        test.wait("populated-by-clone", "bound", is_bound).await?;
        let is_done = |claim: &PersistentVolumeClaim| {
            noted(claim, "cdi.kubevirt.io/clonePhase") == Some("Succeeded")
        };
        test.wait("populated-by-clone", "cloned", is_done).await?;
        test.holds("populated-by-clone", &disk()).await
    });
}

#[test]
fn example_clones_across_namespaces_need_their_documented_permission() {
    run("examples-far", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("shared-disk", CLASS, "Block")]).await?;
        let objects = small("dv-clone-pvc-cross-namespace", &far)?;
        let anna = test.editor("anna").await?;
        let mut refused = objects.first().context("an example has objects")?.clone();
        refused["metadata"]["namespace"] = test.namespace().into();
        let all = Api::<api::v1beta1::DataVolume>::namespaced(anna, test.namespace());
        let outcome = all.create(&PostParams::default(), &serde_json::from_value(refused)?).await;
        let error = outcome.err().context("anna may not clone from there")?.to_string();
        let words = "User anna has insufficient permissions in clone source namespace";
        ensure!(error.contains(words), "{error}");
        apply(&test, objects).await?;
        is_clone(&test, "borrowed-disk").await?;

        far.take_snapshot("shared-disk", "rhel9-0c1d2e3f4a5b").await?;
        apply(&test, small("dv-clone-snapshot", &far)?).await?;
        is_clone(&test, "from-snapshot").await
    });
}
