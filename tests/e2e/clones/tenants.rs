//! Clones in namespaces with quotas, with virtual machines that own them, and with virtual machines that wait for them.

use anyhow::{Context, Result, ensure};
use api::v1beta1::DataVolume;
use e2e::{PodPlan, Test, condition_is_false_with, imported, phase, server};
use futures_util::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::world::{WAYS, clone_of, disk, golden, run, running, was_made};

fn quota(name: &str, hard: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "hard": hard } })
}

/// Creates a quota, and waits until its status shows that it is enforced.
async fn limit(test: &Test, name: &str, hard: Value) -> Result<()> {
    test.create::<ResourceQuota>(quota(name, hard)).await?;
    let counted =
        |quota: &ResourceQuota| quota.status.as_ref().is_some_and(|status| status.hard.is_some());
    test.wait(name, "in force", counted).await.map(|_| ())
}

async fn lift(test: &Test, name: &str) -> Result<()> {
    let quotas = test.all::<ResourceQuota>();
    quotas.delete(name, &DeleteParams::default()).await?;
    test.wait_until_gone(&quotas, name).await
}

#[test]
fn clones_in_namespaces_with_quotas_report_what_is_missing() {
    run("quotas", async |test| {
        let far = test.other_namespace().await?;
        golden(&far, &[("golden", "csi", "Block")]).await?;
        // A pod without these limits is not admitted.
        let resources = json!({
            "requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "16Gi",
            "requests.storage": "2Gi",
        });
        limit(&test, "all", resources.clone()).await?;
        limit(&far, "all", resources).await?;
        // All objects of a clone are created in the namespace of its source, whose quota is used up.
        limit(&far, "claims", json!({ "persistentvolumeclaims": "1" })).await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &far, "golden")).await?;
        }
        for (way, _) in WAYS {
            let message =
                test.event_message_of("PersistentVolumeClaim", way, "ErrExceededQuota").await?;
            ensure!(message.contains("exceeded quota: claims"), "{way}: {message}");
        }
        lift(&far, "claims").await?;
        for (way, _) in WAYS {
            test.succeeded(way).await?;
        }
        // The pods that read the content are no workers, and report nothing.
        lift(&test, "all").await?;
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
        }
        // And where the quota leaves nothing for the clone itself.
        limit(&test, "storage", json!({ "requests.storage": "150Mi" })).await?;
        test.apply(clone_of("more", WAYS[0].1, &far, "golden")).await?;
        let is_reported =
            |volume: &DataVolume| condition_is_false_with(volume, "Bound", "exceeded quota");
        test.wait("more", "reported to exceed the quota", is_reported).await?;
        lift(&test, "storage").await?;
        was_made(&test, "more", WAYS[0].0).await?;
        test.clones_leave(&["csi-clone", "snapshot", "copy", "more"], &[]).await?;
        far.clones_leave(&["golden"], &[]).await
    });
}

/// What owns DataVolumes as a virtual machine does those of its templates.
async fn machine(test: &Test, name: &str) -> Result<Value> {
    let made = test.create::<ConfigMap>(json!({ "metadata": { "name": name } })).await?;
    let uid = made.uid().context("it has a UID")?;
    Ok(json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]))
}

#[test]
fn clone_outlives_its_sources_vm_but_not_its_own() {
    run("machines", async |test| {
        let source = machine(&test, "source").await?;
        let server = server(&disk());
        let mut golden = imported("golden", "csi", "Block", &server);
        golden["metadata"]["ownerReferences"] = source;
        test.apply(golden).await?;
        test.succeeded("golden").await?;
        let mut gone = vec!["golden".to_owned()];
        let owner = machine(&test, "template").await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &test, "golden")).await?;
            let name = format!("of-template-{way}");
            let mut object = clone_of(&name, class, &test, "golden");
            object["metadata"]["ownerReferences"] = owner.clone();
            test.apply(object).await?;
            gone.push(name);
        }
        for (way, _) in WAYS {
            test.succeeded(way).await?;
            test.succeeded(&format!("of-template-{way}")).await?;
        }
        let machines = test.all::<ConfigMap>();
        for name in ["source", "template"] {
            machines.delete(name, &DeleteParams::default()).await?;
        }
        for name in &gone {
            test.wait_until_gone(&test.all::<DataVolume>(), name).await?;
            test.wait_until_gone(&test.all::<PersistentVolumeClaim>(), name).await?;
        }
        for (way, _) in WAYS {
            was_made(&test, way, way).await?;
        }
        test.clones_leave(&["csi-clone", "snapshot", "copy"], &[]).await
    });
}

#[test]
fn consumer_created_first_waits_for_the_clone() {
    run("early", async |test| {
        golden(&test, &[("golden", "csi", "Block")]).await?;
        PodPlan::new("vm", &["pause"]).for_ever().device("golden", "/disk").start(&test).await?;
        for (way, class) in WAYS {
            test.apply(clone_of(way, class, &test, "golden")).await?;
        }
        for (way, _) in WAYS {
            let is_reported = |volume: &DataVolume| running(volume).contains("it is used by vm");
            test.wait(way, "reported to wait for its source", is_reported).await?;
        }
        let test_here = &*test;
        let disk = disk();
        let readers = WAYS.iter().map(|(way, _)| test_here.holds(way, &disk));
        let meanwhile = async {
            for (way, _) in WAYS {
                let reader = format!("{way}-reader");
                test_here.wait(&reader, "waiting", |_: &Pod| true).await?;
            }
            for (way, _) in WAYS {
                let volume = test_here.all::<DataVolume>().get(way).await?;
                ensure!(phase(&volume) != "Succeeded", "{way} did not wait");
                let reader = test_here.all::<Pod>().get(&format!("{way}-reader")).await?;
                let now = reader.status.and_then(|status| status.phase).unwrap_or_default();
                ensure!(now == "Pending", "the reader of {way} is {now}");
            }
            test_here.lose_pod("vm").await
        };
        try_join(try_join_all(readers), meanwhile).await?;
        for (way, _) in WAYS {
            test.succeeded(way).await?;
        }
        test.clones_leave(&["golden", "csi-clone", "snapshot", "copy"], &[]).await
    });
}
