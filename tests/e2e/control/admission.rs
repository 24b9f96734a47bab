//! What the webhooks refuse, with upstream CDI's messages, and what they admit.

use anyhow::{Context, Result, ensure};
use api::v1beta1::{Cdi, DataVolume};
use e2e::{Test, run_installed};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::world::{example, volume};

/// A DataVolume that is good, but for one member of its spec, which is this or, by null, missing.
fn with(path: &str, value: Value) -> Value {
    let mut object = volume("disk", "csi", "Block", json!({ "blank": {} }));
    if let Some((parent, key)) = path.rsplit_once('/')
        && let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        parent.remove(key);
        if !value.is_null() {
            parent.insert(key.to_owned(), value);
        }
    }
    object
}

async fn refused(test: &Test, object: Value, words: &str) -> Result<()> {
    let outcome = test.apply(object.clone()).await;
    let Err(error) = outcome else { anyhow::bail!("{object} was taken") };
    let text = format!("{error:#}");
    ensure!(text.contains(words), "{object} was refused, but with other words: {text}");
    Ok(())
}

#[test]
fn invalid_objects_are_refused_with_upstream_cdis_messages() {
    run_installed("refused", async |test| {
        let storage = "/spec/pvc/resources/requests/storage";
        let place = json!({ "namespace": "", "name": "" });
        for (path, value, words) in [
            ("/spec/pvc", Value::Null, "Missing Data volume PVC"),
            ("/spec/storage", json!({}), "both target storage and target pvc defined"),
            (storage, json!("0"), "PVC size can't be equal or less than zero"),
            (storage, json!("1000"), "size should be at least 1MiB"),
            ("/spec/pvc/resources", json!({}), "PVC size is missing"),
            ("/spec/pvc/accessModes", json!([]), "at least 1 access mode is required"),
            ("/spec/source", Value::Null, "should have either Source or SourceRef"),
            ("/spec/source", json!({}), "Missing Data volume source"),
            ("/spec/source", json!({ "blank": {}, "upload": {} }), "Multiple Data volume sources"),
            ("/spec/contentType", json!("archive"), "SourceType cannot be blank"),
            ("/spec/contentType", json!("other"), "supported values: \"kubevirt\", \"archive\""),
            ("/spec/source", json!({ "http": { "url": "" } }), "source URL is empty"),
            (
                "/spec/source",
                json!({ "http": { "url": "ftp://a/b" } }),
                "Invalid source URL scheme",
            ),
            ("/spec/source", json!({ "registry": {} }), "registry"),
            (
                "/spec/source",
                json!({ "imageio": { "url": "https://a" } }),
                "diskId: Required value",
            ),
            // The mutating webhook, which checks permissions, is called first.
            ("/spec/source", json!({ "pvc": place }), "denied the request"),
        ] {
            refused(&test, with(path, value), words).await?;
        }
        Ok(())
    });
}

#[test]
fn data_volume_spec_is_immutable() {
    run_installed("immutable", async |test| {
        use kube::api::{Patch, PatchParams};
        test.apply(with("/spec/preallocation", json!(true))).await?;
        let all = test.all::<DataVolume>();
        let change = |value: Value| Patch::Merge(json!({ "spec": value }));
        let other = change(json!({ "preallocation": false }));
        let error = all.patch("disk", &PatchParams::default(), &other).await;
        let error = error.err().context("its spec was changed")?;
        ensure!(error.to_string().contains("Cannot update DataVolume Spec"), "{error}");
        let labelled = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
        all.patch("disk", &PatchParams::default(), &labelled).await?;
        Ok(())
    });
}

#[test]
fn volume_of_another_namespace_is_cloned_only_with_permission() {
    run_installed("clone-rights", async |test| {
        let source = json!({ "pvc": { "namespace": "nowhere-at-all", "name": "disk" } });
        refused(&test, with("/spec/source", source), "not found").await?;
        let anna = test.editor("anna").await?;
        let user = kube::Api::<DataVolume>::namespaced(anna, test.namespace());
        let source = json!({ "pvc": { "namespace": "kube-system", "name": "disk" } });
        let mut object = with("/spec/source", source);
        object["metadata"]["namespace"] = test.namespace().into();
        let made = user.create(&Default::default(), &serde_json::from_value(object)?).await;
        let error = made.err().context("anna may not copy from there")?.to_string();
        let words = "User anna has insufficient permissions in clone source namespace kube-system";
        ensure!(error.contains(words), "{error}");
        Ok(())
    });
}

#[test]
fn self_contained_examples_are_admitted() {
    run_installed("let-through", async |test| {
        for name in
            ["dv-import-http-qcow2", "dv-upload", "dv-blank", "dv-import-registry-short-name"]
        {
            for object in example(name)? {
                test.apply(object).await.with_context(|| name.to_owned())?;
            }
        }
        // As programs write them.
        let mut generated = volume("", "csi", "Block", json!({ "blank": {} }));
        generated["metadata"] =
            json!({ "generateName": "disk-", "creationTimestamp": null, "labels": {} });
        generated["status"] = json!({});
        let name = test.apply(generated).await?.name_any();
        test.succeeded(&name).await.map(|_| ())
    });
}

#[test]
fn invalid_certificate_durations_are_refused() {
    run_installed("certificate-lives", async |test| {
        let installations = Api::<Cdi>::all(test.client());
        let on_trial = PostParams { dry_run: true, ..PostParams::default() };
        let installation = |settings: &Value| {
            let spec = json!({ "certConfig": settings });
            serde_json::from_value::<Cdi>(
                json!({ "metadata": { "name": "on-trial" }, "spec": spec }),
            )
        };
        for (settings, words) in [
            (json!({ "ca": { "duration": "9m" } }), "duration has to be a duration of 10m or more"),
            (json!({ "server": { "duration": "soon" } }), "duration"),
            (json!({ "ca": { "renewBefore": "49h" } }), "ca.renewBefore is more than ca.duration"),
            // The other one of a pair counts as it usually is.
            (json!({ "ca": { "duration": "12h" } }), "ca.renewBefore is more than ca.duration"),
            (
                json!({ "server": { "duration": "1h", "renewBefore": "1h1s" } }),
                "server.renewBefore is more than server.duration",
            ),
            (
                json!({ "server": { "duration": "49h" } }),
                "server.duration is more than ca.duration",
            ),
        ] {
            let outcome = installations.create(&on_trial, &installation(&settings)?).await;
            let Err(error) = outcome else { anyhow::bail!("{settings} was taken") };
            ensure!(error.to_string().contains(words), "{settings}: {error}");
        }
        for settings in [
            json!({ "ca": { "duration": "48h0m0s", "renewBefore": "24h0m0s" } }),
            json!({ "ca": { "duration": "10m", "renewBefore": "10m" },
                    "server": { "duration": "10m", "renewBefore": "10m" } }),
            Value::Null,
        ] {
            installations.create(&on_trial, &installation(&settings)?).await?;
        }
        Ok(())
    });
}
