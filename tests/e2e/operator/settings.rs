//! The fields of the CDI object, changed in a running installation, and what each changes.

use std::time::Instant;

use anyhow::{Result, ensure};
use api::annotations::operator::CERT_NOT_AFTER;
use api::v1beta1::{Cdi, DataVolume};
use e2e::{NAMESPACE, PAUSE, Test, volume};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::installation::{CR, PATIENCE, PROGRAMS, available};

/// The annotation that the customizations of this test add.
const PATCHED: &str = "cdi.test/patched";

/// All of them; in the end the settings are the defaults again.
pub async fn take_effect(test: &Test) -> Result<()> {
    programs_follow(test).await?;
    flags_replace_arguments(test).await?;
    patches_of_each_type_are_applied(test).await?;
    workers_follow(test).await?;
    rendering_is_switched(test).await?;
    certificates_get_other_lifetimes(test).await?;
    available(test, None).await.map(drop)
}

pub async fn patch(test: &Test, spec: Value) -> Result<()> {
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

fn toleration() -> Value {
    json!({ "key": "infra", "operator": "Exists", "effect": "NoSchedule" })
}

async fn programs_follow(test: &Test) -> Result<()> {
    let linux = json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] });
    let preferred = json!([{ "weight": 7, "preference": { "matchExpressions": [linux] } }]);
    patch(test, json!({
        "imagePullPolicy": "Never",
        "priorityClass": "system-cluster-critical",
        "infra": {
            "nodeSelector": { "kubernetes.io/os": "linux", "kubernetes.io/hostname": "cdi-node" },
            "tolerations": [toleration()],
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } },
            "apiServerReplicas": 2, "deploymentReplicas": 2, "uploadProxyReplicas": 2,
        },
        "config": { "logVerbosity": 3, "imagePullSecrets": [{ "name": "pull" }] },
    }))
    .await?;
    for program in PROGRAMS {
        deployment(test, program, "as the CDI object specifies", |found| {
            let pod = pod(found);
            pod["containers"][0]["imagePullPolicy"] == "Never"
                && pod["priorityClassName"] == "system-cluster-critical"
                && pod["nodeSelector"]["kubernetes.io/hostname"] == "cdi-node"
                && pod["tolerations"].as_array().is_some_and(|all| all.contains(&toleration()))
                && pod["affinity"]["nodeAffinity"].to_string().contains("\"weight\":7")
                && pod["imagePullSecrets"] == json!([{ "name": "pull" }])
                && found["spec"]["replicas"] == 2
                && arguments(found).contains("-v=3")
        })
        .await?;
    }
    available(test, None).await?;
    // Two replicas: both serve or wait, and DataVolumes are reconciled as ever.
    test.apply(volume("replicated", "csi", "Block", json!({ "blank": {} }))).await?;
    test.succeeded("replicated").await?;
    let one_of_each =
        json!({ "apiServerReplicas": 1, "deploymentReplicas": 1, "uploadProxyReplicas": 1 });
    patch(test, json!({ "infra": one_of_each, "config": { "logVerbosity": null } })).await
}

async fn flags_replace_arguments(test: &Test) -> Result<()> {
    let flags =
        json!({ "api": { "v": "2" }, "controller": { "v": "2" }, "uploadProxy": { "v": "2" } });
    patch(test, json!({ "customizeComponents": { "flags": flags } })).await?;
    for program in PROGRAMS {
        deployment(test, program, "started with the flag", |found| {
            arguments(found).contains(r#""-v","2""#) && found["spec"]["replicas"] == 1
        })
        .await?;
    }
    available(test, None).await.map(drop)
}

/// A strategic patch of all Deployments, a merge patch of a webhook configuration, and a JSON patch of a Service, whose path is
/// created.
async fn patches_of_each_type_are_applied(test: &Test) -> Result<()> {
    let customization = |kind: &str, name: &str, how: &str, patch: Value| {
        json!({
            "resourceType": kind, "resourceName": name, "type": how, "patch": patch.to_string(),
        })
    };
    let annotated = json!({ "metadata": { "annotations": { PATCHED: "merge" } } });
    let template = json!({ "spec": { "template": { "metadata": {
        "annotations": { PATCHED: "strategic" },
    } } } });
    let path = format!("/metadata/annotations/{}", PATCHED.replace('/', "~1"));
    let operation = json!([{ "op": "add", "path": path, "value": "json" }]);
    let webhook = "cdi-api-datavolume-validate";
    let patches = json!([
        customization("Deployment", "*", "strategic", template),
        customization("ValidatingWebhookConfiguration", webhook, "merge", annotated),
        customization("Service", "cdi-api", "json", operation),
    ]);
    patch(test, json!({ "customizeComponents": { "flags": null, "patches": patches } })).await?;
    for program in PROGRAMS {
        deployment(test, program, "patched", |found| {
            found["spec"]["template"]["metadata"]["annotations"][PATCHED] == "strategic"
        })
        .await?;
    }
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(test.client());
    let services = Api::<Service>::namespaced(test.client(), NAMESPACE);
    let has = |annotations: &Option<std::collections::BTreeMap<String, String>>,
               value: Option<&str>| {
        annotations.as_ref().and_then(|all| all.get(PATCHED)).map(String::as_str) == value
    };
    for (what, merge, json) in [("patched", Some("merge"), Some("json")), ("as before", None, None)]
    {
        let is_so =
            |found: &ValidatingWebhookConfiguration| has(&found.metadata.annotations, merge);
        test.wait_among(&webhooks, webhook, what, is_so).await?;
        let is_so = |found: &Service| has(&found.metadata.annotations, json);
        test.wait_among(&services, "cdi-api", what, is_so).await?;
        patch(test, json!({ "customizeComponents": null })).await?;
    }
    available(test, None).await.map(drop)
}

/// `workload` places the pods of DataVolumes, and `imagePullSecrets` are theirs too.
async fn workers_follow(test: &Test) -> Result<()> {
    let workload = json!({
        "nodeSelector": { "kubernetes.io/hostname": "cdi-node" }, "tolerations": [toleration()],
    });
    patch(test, json!({ "workload": workload })).await?;
    test.apply(volume("placed", "csi", "Block", json!({ "upload": {} }))).await?;
    let pods = test.all::<Pod>();
    let servers = ListParams::default().labels("cdi.kubevirt.io=cdi-upload-server");
    let begin = Instant::now();
    let server = loop {
        if let Some(found) = pods.list(&servers).await?.items.pop() {
            break serde_json::to_value(found)?;
        }
        ensure!(begin.elapsed() < PATIENCE, "there is no upload server");
        tokio::time::sleep(PAUSE).await;
    };
    let spec = &server["spec"];
    ensure!(spec["nodeSelector"]["kubernetes.io/hostname"] == "cdi-node", "{spec}");
    ensure!(
        spec["tolerations"].as_array().is_some_and(|all| all.contains(&toleration())),
        "{spec}"
    );
    ensure!(spec["imagePullSecrets"] == json!([{ "name": "pull" }]), "{spec}");
    test.all::<DataVolume>().delete("placed", &DeleteParams::default()).await?;
    patch(test, json!({ "workload": null, "config": { "imagePullSecrets": null } })).await
}

async fn rendering_is_switched(test: &Test) -> Result<()> {
    const WEBHOOK: &str = "cdi-api-pvc-mutate";
    let webhooks = Api::<MutatingWebhookConfiguration>::all(test.client());
    patch(test, json!({ "config": { "webhookPvcRendering": "Disabled" } })).await?;
    test.wait_until_gone(&webhooks, WEBHOOK).await?;
    patch(test, json!({ "config": { "webhookPvcRendering": null } })).await?;
    test.wait_among(&webhooks, WEBHOOK, "there again", |_| true).await.map(drop)
}

/// The certificates of servers are replaced by those of the lifetime that is set, and back.
async fn certificates_get_other_lifetimes(test: &Test) -> Result<()> {
    const LIMIT: SignedDuration = SignedDuration::from_hours(3);
    let lasts_less = |secret: &Secret| -> Option<bool> {
        let end = secret.metadata.annotations.as_ref()?.get(CERT_NOT_AFTER)?;
        let end: Timestamp = end.parse().ok()?;
        Some(end.duration_since(Timestamp::now()) < LIMIT)
    };
    let secrets = Api::<Secret>::namespaced(test.client(), NAMESPACE);
    let name = "cdi-apiserver-server-cert";
    let before = secrets.get(name).await?;
    ensure!(lasts_less(&before) == Some(false), "the usual lifetime is not over {LIMIT:#}");
    let short = json!({ "server": { "duration": "2h0m0s", "renewBefore": "1h0m0s" } });
    patch(test, json!({ "certConfig": short })).await?;
    let is_short = |secret: &Secret| lasts_less(secret) == Some(true);
    test.wait_among(&secrets, name, "of two hours", is_short).await?;
    available(test, None).await?;
    patch(test, json!({ "certConfig": null })).await?;
    let is_long = |secret: &Secret| lasts_less(secret) == Some(false);
    test.wait_among(&secrets, name, "of the usual lifetime", is_long).await.map(drop)
}
