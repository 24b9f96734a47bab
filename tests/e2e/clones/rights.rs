//! Permissions of clones: forged annotations and tokens do not replace a permission.

use anyhow::{Context, ensure};
use api::v1beta1::DataVolume;
use e2e::Test;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::world::{BY_CLONE, WAYS, clone_of, golden, noted, run, was_made};

const TOKEN: &str = "cdi.kubevirt.io/storage.clone.token";
const EXTENDED_TOKEN: &str = "cdi.kubevirt.io/storage.extended.clone.token";

async fn make(test: &Test, client: &Client, mut volume: Value) -> kube::Result<DataVolume> {
    volume["metadata"]["namespace"] = test.namespace().into();
    let volume = serde_json::from_value(volume).expect("a DataVolume");
    let all = Api::<DataVolume>::namespaced(client.clone(), test.namespace());
    all.create(&PostParams::default(), &volume).await
}

#[test]
fn clone_across_namespaces_needs_permission() {
    run("rights", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        let anna = test.editor("anna").await?;
        let refused = format!(
            "User anna has insufficient permissions in clone source namespace {}",
            far.namespace()
        );
        for token in [None, Some("not.a.token")] {
            for (way, class) in WAYS {
                let mut volume = clone_of(way, class, &far, "golden");
                if let Some(token) = token {
                    volume["metadata"]["annotations"] = json!({ TOKEN: token });
                }
                let made = make(&test, &anna, volume).await;
                let error = made.err().with_context(|| format!("{way} was let through"))?;
                ensure!(error.to_string().contains(&refused), "{way}: {error}");
            }
        }
        far.grant("anna", "cdi.kubevirt.io:clone-sourcer").await?;
        for (way, class) in WAYS {
            // The authorizer observes a role binding a moment after it was created.
            let mut tries = 0;
            while let Err(error) = make(&test, &anna, clone_of(way, class, &far, "golden")).await {
                tries += 1;
                ensure!(error.to_string().contains(&refused) && tries < 100, "{way}: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
        }
        test.clones_leave(&["csi-clone", "snapshot", "copy"], &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

#[test]
fn pvc_with_a_forged_or_stolen_token_is_refused() {
    run("forged", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        far.apply(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "VolumeCloneSource",
            "metadata": { "name": "source" },
            "spec": { "source": { "kind": "PersistentVolumeClaim", "name": "golden" } },
        }))
        .await?;
        // The token of another clone of the same source to the same namespace.
        test.apply(clone_of("other", BY_CLONE, &far, "golden")).await?;
        test.succeeded("other").await?;
        far.only_these_are_left(&["golden"]).await?; // the objects of the other clone are deleted a moment later
        let other = test.all::<DataVolume>().get("other").await?;
        let stolen = |key: &str| {
            let token = other.annotations().get(key).cloned();
            token.with_context(|| format!("there is no {key}"))
        };
        let tokens = [
            (TOKEN, "not.a.token".to_owned()),
            (EXTENDED_TOKEN, "not.a.token".to_owned()),
            (TOKEN, stolen(TOKEN)?),
            (EXTENDED_TOKEN, stolen(EXTENDED_TOKEN)?),
        ];
        let anna = test.editor("anna").await?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(anna, test.namespace());
        let mut names = vec!["other".to_owned()];
        for (at, (key, token)) in tokens.into_iter().enumerate() {
            let name = format!("thief-{at}");
            let claim = claim(&name, far.namespace(), key, &token);
            claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
            names.push(name);
        }
        for name in &names[1..] {
            let is_refused = |claim: &PersistentVolumeClaim| {
                noted(claim, "cdi.kubevirt.io/clonePhase") == Some("Error")
            };
            let claim = test.wait(name, "refused", is_refused).await?;
            let why = noted(&claim, "cdi.kubevirt.io/cloneError").unwrap_or_default();
            ensure!(why.contains("invalid token"), "{name}: {why}");
        }
        let there = far.all::<PersistentVolumeClaim>().list(&ListParams::default()).await?.items;
        ensure!(there.len() == 1, "an object was created for a thief: {there:?}");
        let sources = far.all::<api::v1beta1::VolumeCloneSource>();
        sources.delete("source", &Default::default()).await?;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        test.clones_leave(&names, &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

/// A PVC of the test's namespace that would be filled from another one.
fn claim(name: &str, from: &str, key: &str, token: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": { "cdi.kubevirt.io/dataSourceNamespace": from, key: token },
        },
        "spec": {
            "storageClassName": BY_CLONE, "volumeMode": "Block", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": e2e::SIZE } },
            "dataSourceRef": {
                "apiGroup": "cdi.kubevirt.io", "kind": "VolumeCloneSource", "name": "source",
            },
        },
    })
}
