//! What the webhooks refuse, with the words that people have always read, and what they let through.

use anyhow::{Context, Result, ensure};
use e2e::{Test, run_installed};
use kube::ResourceExt;
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
fn what_is_wrong_is_refused_with_the_words_of_old() {
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
            // The webhook that looks for rights speaks first.
            ("/spec/source", json!({ "pvc": place }), "denied the request"),
        ] {
            refused(&test, with(path, value), words).await?;
        }
        Ok(())
    });
}

#[test]
fn what_a_data_volume_is_made_of_does_not_change() {
    run_installed("immutable", async |test| {
        use api::v1beta1::DataVolume;
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
fn a_volume_of_another_namespace_is_copied_only_by_who_may() {
    run_installed("clone-rights", async |test| {
        let source = json!({ "pvc": { "namespace": "nowhere-at-all", "name": "disk" } });
        refused(&test, with("/spec/source", source), "not found").await?;
        let user = as_user(&test, "anna").await?;
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

/// The DataVolumes of the test's namespace, for a user who may edit there and nowhere else.
async fn as_user(test: &Test, name: &str) -> Result<kube::Api<api::v1beta1::DataVolume>> {
    test.apply(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }],
    }))
    .await?;
    let mut config = test.config().await?;
    config.auth_info.impersonate = Some(name.to_owned());
    let client = kube::Client::try_from(config)?;
    let all = kube::Api::namespaced(client, test.namespace());
    // The role of editors takes ours in a moment after it was made.
    for _ in 0..100 {
        if all.list(&Default::default()).await.is_ok() {
            return Ok(all);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("{name} may not even list DataVolumes")
}

#[test]
fn every_example_that_needs_nothing_else_is_let_through() {
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
