//! From nothing to an installation that is available, follows its CDI object, and repairs itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::v1beta1::Cdi;
use e2e::{NAMESPACE, PAUSE, Test, volume};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::installation::{
    CR, PATIENCE, PROGRAMS, available, install, owned_objects, release_file, remove,
    run_where_nothing_is_installed,
};

/// An object that was deleted is back within this time.
const REPAIR_TIME: Duration = Duration::from_secs(30);
/// CRDs whose deletion removes no objects that the rest of the test needs.
const CRDS_WITHOUT_OBJECTS: [&str; 4] = [
    "objecttransfers.cdi.kubevirt.io",
    "openstackvolumepopulators.forklift.cdi.kubevirt.io",
    "ovirtvolumepopulators.forklift.cdi.kubevirt.io",
    "volumeuploadsources.cdi.kubevirt.io",
];

#[test]
fn installation_from_nothing_is_available_configurable_and_repaired() {
    run_where_nothing_is_installed("install", async |test| {
        let took = install(&test).await?;
        eprintln!("available {:.1} s after `kubectl apply`", took.as_secs_f64());
        let blank = json!({ "blank": {} });
        test.apply(volume("first", "csi", "Block", blank)).await?;
        test.succeeded("first").await?;
        settings_take_effect(&test).await?;
        second_installation_is_refused(&test).await?;
        deleted_objects_come_back(&test).await?;
        expired_certificates_are_renewed(&test).await?;
        ensure!(test.all::<api::v1beta1::DataVolume>().get("first").await.is_ok(), "it is gone");
        remove(&test, &release_file("cdi-operator.yaml")?).await
    });
}

async fn patch(test: &Test, spec: Value) -> Result<()> {
    let all = Api::<Cdi>::all(test.client());
    let patch = json!({ "spec": spec });
    all.patch(CR, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Waits until a Deployment is as its CDI object wants it.
async fn deployment(
    test: &Test,
    name: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<()> {
    let all = Api::<Deployment>::namespaced(test.client(), NAMESPACE);
    let is_so = |found: &Deployment| serde_json::to_value(found).is_ok_and(|found| is_so(&found));
    test.wait_among(&all, name, what, is_so).await.map(drop)
}

fn pod(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]
}

fn arguments(deployment: &Value) -> String {
    pod(deployment)["containers"][0]["args"].to_string()
}

async fn settings_take_effect(test: &Test) -> Result<()> {
    let toleration = json!({ "key": "infra", "operator": "Exists", "effect": "NoSchedule" });
    patch(test, json!({
        "imagePullPolicy": "Never",
        "priorityClass": "system-cluster-critical",
        "infra": {
            "nodeSelector": { "kubernetes.io/os": "linux", "kubernetes.io/hostname": "cdi-node" },
            "tolerations": [toleration],
            "apiServerReplicas": 2, "deploymentReplicas": 2, "uploadProxyReplicas": 2,
        },
        "config": { "logVerbosity": 3 },
        "customizeComponents": {
            "patches": [{
                "resourceType": "Deployment", "resourceName": "*", "type": "strategic",
                "patch": r#"{"spec":{"template":{"metadata":{"annotations":{"patched":"yes"}}}}}"#,
            }],
        },
    }))
    .await?;
    for program in PROGRAMS {
        deployment(test, program, "as the CDI object specifies", |found| {
            let pod = pod(found);
            pod["containers"][0]["imagePullPolicy"] == "Never"
                && pod["priorityClassName"] == "system-cluster-critical"
                && pod["nodeSelector"]["kubernetes.io/hostname"] == "cdi-node"
                && pod["tolerations"].as_array().is_some_and(|all| all.contains(&toleration))
                && found["spec"]["replicas"] == 2
                && arguments(found).contains("-v=3")
                && found["spec"]["template"]["metadata"]["annotations"]["patched"] == "yes"
        })
        .await?;
    }
    available(test, None).await?;
    // Two replicas: both serve or wait, and DataVolumes are reconciled as ever.
    test.apply(volume("replicated", "csi", "Block", json!({ "blank": {} }))).await?;
    test.succeeded("replicated").await?;
    patch(
        test,
        json!({
            "infra": { "apiServerReplicas": 1, "deploymentReplicas": 1, "uploadProxyReplicas": 1 },
            "customizeComponents": { "patches": null, "flags": { "controller": { "v": "2" } } },
            "config": { "logVerbosity": null, "webhookPvcRendering": "Disabled" },
        }),
    )
    .await?;
    deployment(test, "cdi-deployment", "started with the flag", |found| {
        arguments(found).contains(r#""-v","2""#) && found["spec"]["replicas"] == 1
    })
    .await?;
    let webhooks = Api::<MutatingWebhookConfiguration>::all(test.client());
    test.wait_until_gone(&webhooks, "cdi-api-pvc-mutate").await?;
    patch(
        test,
        json!({
            "customizeComponents": { "flags": null }, "config": { "webhookPvcRendering": null },
        }),
    )
    .await?;
    test.wait_among(&webhooks, "cdi-api-pvc-mutate", "there again", |_| true).await?;
    available(test, None).await.map(drop)
}

async fn second_installation_is_refused(test: &Test) -> Result<()> {
    let second = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
        "metadata": { "name": "second" }, "spec": {},
    });
    test.create_global::<Cdi>(second).await?;
    let all = Api::<Cdi>::all(test.client());
    let refused = |cdi: &Cdi| {
        let phase = cdi.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Error")
    };
    test.wait_among(&all, "second", "refused", refused).await?;
    test.remove_global::<Cdi>("second").await?;
    test.wait_until_gone(&all, "second").await?;
    available(test, None).await.map(drop)
}

async fn deleted_objects_come_back(test: &Test) -> Result<()> {
    let (mut repaired, mut missing) = (0, Vec::new());
    for (kind, object) in owned_objects(test).await? {
        let name = object.name_any();
        if kind.kind == "CustomResourceDefinition" && !CRDS_WITHOUT_OBJECTS.contains(&name.as_str())
        {
            continue;
        }
        let all = match object.namespace() {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(test.client(), &namespace, &kind)
            }
            None => Api::<DynamicObject>::all_with(test.client(), &kind),
        };
        all.delete(&name, &DeleteParams::background()).await?;
        let begin = Instant::now();
        loop {
            if let Some(found) = all.get_opt(&name).await?
                && found.uid() != object.uid()
            {
                break;
            }
            if begin.elapsed() > REPAIR_TIME {
                missing.push(format!("{} {name}", kind.kind));
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        repaired += 1;
    }
    ensure!(missing.is_empty(), "deleted and not back: {}", missing.join(", "));
    ensure!(repaired >= 40, "only {repaired} objects belong to the installation");
    eprintln!("{repaired} deleted objects came back within {} s each", REPAIR_TIME.as_secs());
    available(test, None).await.map(drop)
}

async fn expired_certificates_are_renewed(test: &Test) -> Result<()> {
    let all = Api::<Secret>::namespaced(test.client(), NAMESPACE);
    let name = "cdi-apiserver-server-cert";
    let before = all.get(name).await?.data.context("a Secret has data")?;
    let expired = json!({ "metadata": { "annotations": {
        "auth.openshift.io/certificate-not-after": "2020-01-01T00:00:00Z",
    } } });
    all.patch(name, &PatchParams::default(), &Patch::Merge(expired)).await?;
    let begin = Instant::now();
    while all.get(name).await?.data.as_ref() == Some(&before) {
        ensure!(begin.elapsed() < PATIENCE, "the certificate is not renewed");
        tokio::time::sleep(PAUSE).await;
    }
    eprintln!("an expired certificate was renewed within {} s", begin.elapsed().as_secs());
    Ok(())
}
