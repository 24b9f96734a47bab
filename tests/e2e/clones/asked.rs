//! What the manifest of a clone may omit, and what it may not request.

use anyhow::{Context, Result, ensure};
use api::v1beta1::{DataVolume, StorageProfile};
use e2e::{PodPlan, Test, condition_is_false_with, server, sha256, volume};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{BY_CLONE, BY_COPY, disk, golden, run, run_alone, was_made};

const OF_PLATFORM: &str = "storageclass.kubernetes.io/is-default-class";
const NOTE: &[u8] = b"next to the disk";

#[test]
fn clone_without_size_and_modes_gets_those_of_source_and_class() {
    // For a moment the cluster has a default class, which other tests would get.
    run_alone("omitted", async |test| {
        golden(&test, &[("golden", BY_CLONE, "Block")]).await?;
        describe(&test).await?;
        let classes = Api::<StorageClass>::all(test.client());
        let mark = |value: Option<&str>| {
            let annotations = json!({ OF_PLATFORM: value });
            Patch::Merge(json!({ "metadata": { "annotations": annotations } }))
        };
        classes.patch(BY_CLONE, &PatchParams::default(), &mark(Some("true"))).await?;
        let outcome = without_size_and_modes(&test).await;
        classes.patch(BY_CLONE, &PatchParams::default(), &mark(None)).await?;
        outcome?;
        let claims =
            ["golden", "of-claim", "of-claim-too", "of-snapshot", "of-data-source", "files"];
        test.clones_leave(&claims, &["then"]).await
    });
}

/// Sets the properties of the storage, as an administrator does.
async fn describe(test: &Test) -> Result<()> {
    let profiles = Api::<StorageProfile>::all(test.client());
    let sets = json!([
        { "accessModes": ["ReadWriteMany"], "volumeMode": "Block" },
        { "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem" },
    ]);
    let patch = Patch::Merge(json!({ "spec": { "claimPropertySets": sets } }));
    profiles.patch(BY_CLONE, &PatchParams::default(), &patch).await?;
    let is_taken = |profile: &StorageProfile| {
        profile.status.as_ref().is_some_and(|status| status.claim_property_sets.is_some())
    };
    test.wait_among(&profiles, BY_CLONE, "taken over", is_taken).await.map(|_| ())
}

async fn without_size_and_modes(test: &Test) -> Result<()> {
    test.take_snapshot("golden", "then").await?;
    let of = |name: &str| json!({ "namespace": test.namespace(), "name": name });
    test.apply(json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataSource",
        "metadata": { "name": "golden" }, "spec": { "source": { "pvc": of("golden") } },
    }))
    .await?;
    let by_reference =
        json!({ "kind": "DataSource", "namespace": test.namespace(), "name": "golden" });
    let claim = json!({ "source": { "pvc": of("golden") } });
    let files = json!({ "volumeMode": "Filesystem" });
    let cases = [
        ("of-claim", claim.clone(), json!({}), "csi-clone"),
        ("of-claim-too", claim.clone(), json!({ "resources": {} }), "csi-clone"),
        ("of-snapshot", json!({ "source": { "snapshot": of("then") } }), json!({}), "snapshot"),
        ("of-data-source", json!({ "sourceRef": by_reference }), json!({}), "csi-clone"),
        ("files", claim, files, "copy"),
    ];
    for (name, source, storage, _) in &cases {
        let mut spec = source.clone();
        spec["storage"] = storage.clone();
        let object = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": { "name": name }, "spec": spec,
        });
        test.apply(object).await.with_context(|| (*name).to_owned())?;
    }
    for (name, _, _, way) in &cases {
        let claim = was_made(test, name, way).await?;
        is_like(&claim, *way != "copy").with_context(|| format!("{name}: {claim:?}"))?;
    }
    Ok(())
}

/// As large as the source, on what the class recommends; or larger, because the file system needs space too.
fn is_like(claim: &PersistentVolumeClaim, is_device: bool) -> Result<()> {
    let spec = claim.spec.as_ref().context("it has a spec")?;
    ensure!(spec.storage_class_name.as_deref() == Some(BY_CLONE), "the class");
    let modes =
        if is_device { ("Block", "ReadWriteMany") } else { ("Filesystem", "ReadWriteOnce") };
    let found = spec.access_modes.as_ref().and_then(|modes| modes.first());
    ensure!(
        (spec.volume_mode.as_deref(), found.map(String::as_str)) == (Some(modes.0), Some(modes.1))
    );
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).context("it has a size")?;
    ensure!((size.0 == e2e::SIZE) == is_device, "{}", size.0);
    Ok(())
}

#[test]
fn archive_is_cloned_only_to_a_file_system() {
    run("archives", async |test| {
        let disk = disk();
        let members: [(&str, &[u8]); 2] = [("disk.img", &disk), ("note", NOTE)];
        let tar = testkit::tar(&members).context("there is no tar")?;
        let server = server(&tar);
        let source = json!({ "http": { "url": server.url_of("/files.tar") } });
        test.apply(archive(volume("golden", "csi", "Filesystem", source))).await?;
        test.succeeded("golden").await?;
        let of_golden = |name: &str, class: &str, mode: &str| {
            let source = json!({ "pvc": { "namespace": test.namespace(), "name": "golden" } });
            volume(name, class, mode, source)
        };
        test.apply(archive(of_golden("copied", BY_COPY, "Filesystem"))).await?;
        test.apply(archive(of_golden("cloned", BY_CLONE, "Filesystem"))).await?;
        let refused = ["on-a-device", "claimed-device", "as-a-disk"];
        let mut on_device = archive(of_golden("on-a-device", BY_COPY, "Block"));
        let spec = on_device["spec"].as_object_mut().context("it has a spec")?;
        let storage = spec.remove("pvc").unwrap_or_default();
        spec.insert("storage".into(), storage);
        test.apply(on_device).await?;
        test.apply(archive(of_golden("claimed-device", BY_COPY, "Block"))).await?;
        test.apply(of_golden("as-a-disk", BY_COPY, "Block")).await?;

        let words = "ContentType Archive cannot have block volumeMode";
        test.wait("on-a-device", words, |volume: &DataVolume| {
            condition_is_false_with(volume, "Bound", words)
        })
        .await?;
        let message = test.event_message("claimed-device", "CloneValidationFailed").await?;
        let words = "source volumeMode and target volumeMode do not match, contentType (archive)";
        ensure!(message.ends_with(words), "{message}");
        let message = test.event_message("as-a-disk", "CloneValidationFailed").await?;
        let words = "Source contentType (archive) and target contentType (kubevirt) do not match";
        ensure!(message.ends_with(words), "{message}");
        for (name, way) in [("copied", "copy"), ("cloned", "csi-clone")] {
            was_made(&test, name, way).await?;
            let length = NOTE.len().to_string();
            let reader = format!("{name}-note");
            let reader = PodPlan::new(&reader, &["digest", "/disk/note", &length]);
            let found = reader.mount(name, "/disk").output(&test).await?;
            ensure!(found == format!("{} of {length}", sha256(NOTE)), "{name}: {found}");
        }
        let volumes = test.all::<DataVolume>();
        for name in refused {
            volumes.delete(name, &DeleteParams::default()).await?;
            test.wait_until_gone(&volumes, name).await?;
        }
        test.clones_leave(&["golden", "copied", "cloned"], &[]).await
    });
}

fn archive(mut volume: Value) -> Value {
    volume["spec"]["contentType"] = "archive".into();
    volume
}
